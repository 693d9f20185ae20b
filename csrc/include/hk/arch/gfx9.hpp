// What CDNA3 and CDNA4 have in common: names, waits.
//
// Sources: CDNA3 and CDNA4 ISA guides, "S_WAITCNT"; LLVM AMDGPU usage, memory model GFX942.
#pragma once

#include "../types/vector.hpp"

namespace hk::arch {

// Names of arches for templates, e.g. the shapes that a kernel has for each; `Current` is compiled for.
struct Gfx942;
struct Gfx950;

inline constexpr int kNoWait = -1;

// At most `Vector` global accesses (copies to LDS among them) and `Lds` LDS reads stay outstanding.
// A builtin, not assembly: the compiler knows then what has landed and does not wait once more.
template <int Vector, int Lds>
HK_DEVICE void wait() {
  static_assert(Vector < 63 && Lds < 15, "vmcnt has 6 bits, lgkmcnt 4");
  constexpr int kVector = Vector == kNoWait ? 63 : Vector, kLds = Lds == kNoWait ? 15 : Lds;
  __builtin_amdgcn_s_waitcnt((kVector & 15) | (kVector >> 4) << 14 | 7 << 4 | kLds << 8);
}

}  // namespace hk::arch
