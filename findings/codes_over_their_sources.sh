#!/usr/bin/env bash
# clang 22 lets the result of v_cvt_scalef32_2xpk16_fp6_f32 overlap the sources of the instruction.
#
# The instruction makes 32 codes of two times 16 numbers, in several passes, so that it may write codes before
# it has read all numbers. LLVM's pull request 188809 forbids the overlap, from LLVM 23 on: "the destination
# operand must not overlap with any of the source operands". Code that clang 22 makes of the builtin may give
# wrong codes on an MI350X, in silence. An assembly statement whose result is an early clobber ("=&v") is safe.
#
# Seen with Debian's clang 22.1.8 on x86-64, which compiles for GPUs that are not there.
#
#     bash findings/codes_over_their_sources.sh [CLANG]
#
# needs clang 22, compiles without a GPU, and fails if the registers do not overlap.
set -euo pipefail
clang=${1:-clang-22}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/convert.ll" <<'LLVM'
target triple = "amdgcn-amd-amdpal"
declare <6 x i32> @llvm.amdgcn.cvt.scalef32.2xpk16.fp6.f32(<16 x float>, <16 x float>, float)
define amdgpu_ps void @convert(<16 x float> %a, <16 x float> %b, float %scale, ptr addrspace(1) %to) {
  %codes = call <6 x i32> @llvm.amdgcn.cvt.scalef32.2xpk16.fp6.f32(<16 x float> %a, <16 x float> %b, float %scale)
  store <6 x i32> %codes, ptr addrspace(1) %to, align 16
  ret void
}
LLVM
"$clang" -x ir -target amdgcn-amd-amdpal -mcpu=gfx950 -nogpulib -O2 -S -o "$folder/convert.s" "$folder/convert.ll"
"$clang" --version | head -1
made=$(grep -o 'v_cvt_scalef32_2xpk16_fp6_f32.*' "$folder/convert.s")
echo "$made"
# the first and last register of the codes, and of both sources
read -r first last a b c d <<< "$(grep -oE '[0-9]+:[0-9]+' <<< "$made" | tr ':\n' '  ')"
((first <= b && a <= last)) || ((first <= d && c <= last))
