#!/usr/bin/env bash
# Since LLVM 23 gfx950 code has packed float32 instructions where it had single ones before.
#
# Two independent multiply-adds of one lane, each followed by an exponential, were two v_fma_f32; LLVM's
# SLP vectoriser makes one v_pk_fma_f32 of them. No source asks for it, and none can forbid it: in HIP the
# two may be separate scalar statements. On an MI350X a packed float32 instruction waits until the SIMD's
# matrix unit is idle (docs/timing.md), so code that runs beside matrix instructions gets slower. For a
# kernel of one's own, -fno-slp-vectorize keeps them apart.
#
# Seen with the ordinary wheels of triton on x86-64, which compile for GPUs that are not there: 3.7.0
# (LLVM 23.0.0git, an early one) has two single instructions, 3.8.0 and 3.9.0 (LLVM 23 and 24) have one
# packed instruction. Debian's clang 22.1.8 and 23.1.4 differ alike.
#
#     bash findings/packed_float32_since_llvm_23.sh
#
# needs Python 3.10 or newer and a package index, installs into a temporary folder, compiles without a GPU,
# and fails where one of these answers is another.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/apart.py" <<'PYTHON'
import re
import sys
import warnings

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

warnings.simplefilter("ignore")  # of a default that will change


@triton.jit
def weigh(scores, factor, offset, LANES: tl.constexpr):
    at = scores + tl.arange(0, LANES)
    tl.store(at, tl.exp2(tl.load(at) * factor + offset))


types = {"scores": "*fp32", "factor": "fp32", "offset": "fp32", "LANES": "constexpr"}
source = ASTSource(weigh, types, {"LANES": 512})  # two for each of 256 lanes
made = triton.compile(source, target=GPUTarget("hip", "gfx950", 64), options={"num_warps": 4})
names = re.findall(r"\bv_(?:pk_)?fmac?_f32", made.asm["amdgcn"])
single, packed = sum("pk" not in name for name in names), names.count("v_pk_fma_f32")
print(f"triton {triton.__version__}: {single} single and {packed} packed multiply-adds")
raise SystemExit([single, packed] != [int(word) for word in sys.argv[1:]])
PYTHON
failed=0
while read -r version single packed; do
  python3 -m venv --clear "$folder/venv"
  "$folder/venv/bin/pip" --quiet install "triton==$version"
  TRITON_CACHE_DIR="$folder/cache-$version" \
    "$folder/venv/bin/python" "$folder/apart.py" "$single" "$packed" || failed=1
done <<'VERSIONS'
3.7.0 2 0
3.8.0 0 1
3.9.0 0 1
VERSIONS
exit "$failed"
