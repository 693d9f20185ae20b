#!/usr/bin/env bash
# A Triton program that counts up a number in memory is ordered within each of its warps, not among them.
#
# Every warp of the program loads the number, and thread 0 of the first warp stores the next one. No
# barrier stands between: a warp that comes late loads what its own program has stored. Written order
# ("load, then store") says otherwise, and with one warp it holds.
#
# Seen with triton 3.9.0 on x86-64, whose ordinary wheel compiles for GPUs that are not there: for gfx942
# and gfx950 a scalar load by each wave, a store by one lane, no s_barrier; for sm_90 a load by each warp,
# a predicated store, no bar.sync. With num_warps=4 as with 1.
#
#     bash findings/triton_update_without_barrier.sh
#
# needs Python 3.10 or newer and a package index, installs into a temporary folder, compiles without a GPU,
# and fails where a barrier appears.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install triton==3.9.0
cat > "$folder/count.py" <<'PYTHON'
import warnings

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

warnings.simplefilter("ignore")  # of a default that will change


@triton.jit
def count(numbers, out, LANES: tl.constexpr):
    at = tl.program_id(0)
    before = tl.load(numbers + at)
    tl.store(numbers + at, before + 1)
    lane = tl.arange(0, LANES)
    tl.store(out + at * LANES + lane, before + lane)


types = {"numbers": "*i32", "out": "*i32", "LANES": "constexpr"}
source = ASTSource(count, types, {"LANES": 256})
failed = False
for target, text, loads, barrier in (
    (GPUTarget("hip", "gfx942", 64), "amdgcn", ("s_load_dword ", "global_load"), "s_barrier"),
    (GPUTarget("hip", "gfx950", 64), "amdgcn", ("s_load_dword ", "global_load"), "s_barrier"),
    (GPUTarget("cuda", 90, 32), "ptx", ("ld.global",), "bar.sync"),
):
    made = triton.compile(source, target=target, options={"num_warps": 4}).asm[text]
    loaded, barriers = sum(map(made.count, loads)), made.count(barrier)
    failed |= barriers > 0 or loaded != 1
    print(f"{target.arch}: 4 warps, {loaded} load of the number, {barriers} barriers")
raise SystemExit(failed)
PYTHON
TRITON_CACHE_DIR="$folder/cache" "$folder/venv/bin/python" "$folder/count.py"
