// Names and waits that CDNA3 and CDNA4 have in common.
//
// Sources: CDNA3 and CDNA4 ISA guides, "S_WAITCNT"; LLVM AMDGPU usage, memory model GFX942.
#pragma once

#include "../types/vector.hpp"

namespace hk::arch {

// Names of arches for templates, e.g. the shapes that a kernel has for each; `Current` is compiled
// for.
struct Gfx942;
struct Gfx950;

inline constexpr int kNoWait = -1;

// The operand of s_waitcnt for `wait` below.
template <int Vector, int Lds>
HK_DEVICE constexpr int wait_counts() {
  static_assert(Vector < 63 && Lds < 15, "vmcnt has 6 bits, lgkmcnt 4");
  const int vector = Vector == kNoWait ? 63 : Vector, lds = Lds == kNoWait ? 15 : Lds;
  return (vector & 15) | (vector >> 4) << 14 | 7 << 4 | lds << 8;
}

// Waits until at most `Vector` global accesses (copies to LDS among them) and `Lds` LDS reads are
// outstanding. This is a builtin, not assembly, so that the compiler knows what has landed and does
// not wait again.
template <int Vector, int Lds>
HK_DEVICE void wait() {
  constexpr int kCounts = wait_counts<Vector, Lds>();
  __builtin_amdgcn_s_waitcnt(kCounts);
}

// If `condition` holds, which is wave-uniform: waits until at most `Vector` global accesses are
// outstanding, then meets the barrier. This is assembly, because a branch of the compiler's would
// end the block, and with it the order of the code around it.
template <int Vector>
HK_DEVICE void wait_and_barrier_if(i32 condition) {
  if constexpr (Vector == kNoWait)
    asm volatile(
        "s_cmp_eq_u32 %0, 0\n\ts_cbranch_scc1 .Lelse%=\n\ts_barrier\n.Lelse%=:" ::"s"(condition)
        : "scc", "memory");
  else
    asm volatile(
        "s_cmp_eq_u32 %0, 0\n\ts_cbranch_scc1 .Lelse%=\n\t"
        "s_waitcnt %1\n\ts_barrier\n.Lelse%=:" ::"s"(condition),
        "n"(wait_counts<Vector, kNoWait>())
        : "scc", "memory");
}

// Starts a write, which counts with the reads in `wait_lds`. Assembly as they are, and in order
// with them.
template <int Offset>
HK_DEVICE void write_lds(u32 address, Vec<u32, 4> src) {
  asm volatile("ds_write_b128 %0, %1 offset:%2" ::"v"(address), "v"(src), "n"(Offset));
}

// Two of a word's four e4m3 codes as 16-bit elements, on arches that convert at once (gfx950).
template <class T, bool High>
HK_DEVICE u32 widen_e4m3(u32 codes);

}  // namespace hk::arch
