#!/usr/bin/env bash
# With a largest number of waves on a SIMD, LLVM allocates more registers than `.vgpr_count` says.
#
# amdgpu-waves-per-eu="1,1" (Triton's waves_per_eu=1, HIP's amdgpu_waves_per_eu(1, 1)) asks for one wave at
# most. A kernel of few registers would run with more, so LLVM raises the number in the kernel's descriptor,
# from which hardware allocates: on gfx950 to 257, more than half of a SIMD's 512. The notes keep
# `.vgpr_count`, the registers that the code names. Tools that compute occupancy from the notes see 8 waves
# where one runs, and a launch that fills the GPU by that number comes in rounds. The assembly's
# `.amdhsa_next_free_vgpr` is the number that is allocated.
#
# Seen with the ordinary wheel of triton 3.9.0 on x86-64, which compiles for GPUs that are not there:
# waves_per_eu=0 allocates what `.vgpr_count` says, here 2, 1 allocates 257 and 2 allocates 169. Debian's clang
# 22.1.8 does the same.
#
#     bash findings/more_registers_than_vgpr_count.sh
#
# needs Python 3.10 or newer and a package index, installs into a temporary folder, compiles without a GPU,
# and fails where one of these answers is another.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/registers.py" <<'PYTHON'
import re
import warnings

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

warnings.simplefilter("ignore")  # of a default that will change


@triton.jit
def double(numbers, LANES: tl.constexpr):
    at = numbers + tl.arange(0, LANES)
    tl.store(at, tl.load(at) * 2)


source = ASTSource(double, {"numbers": "*fp32", "LANES": "constexpr"}, {"LANES": 256})
found = {}
for waves in (0, 1, 2):
    options = {"num_warps": 4, "waves_per_eu": waves}
    text = triton.compile(source, target=GPUTarget("hip", "gfx950", 64), options=options).asm["amdgcn"]
    named = int(re.search(r"\.vgpr_count:\s*(\d+)", text)[1])
    allocated = int(re.search(r"\.amdhsa_next_free_vgpr\s+(\d+)", text)[1])
    print(f"triton {triton.__version__}, waves_per_eu={waves}: .vgpr_count {named}, allocated {allocated}")
    found[waves] = named, allocated
named = found[0][0]
raise SystemExit(found != {0: (named, named), 1: (named, 257), 2: (named, 169)})
PYTHON
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install triton==3.9.0
TRITON_CACHE_DIR="$folder/cache" "$folder/venv/bin/python" "$folder/registers.py"
