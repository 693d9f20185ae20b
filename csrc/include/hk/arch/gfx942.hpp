// The instructions of MI300X (gfx942, CDNA3). The seam is complete, but there are no kernels yet:
// what has no counterpart on this arch says so when it is used.
//
// Source: CDNA3 ISA guide (VOP3P-MAI, DS, MUBUF chapters).
#pragma once

#include "gfx9.hpp"
#include "matrix.hpp"

namespace hk::arch {

using Current = Gfx942;
inline constexpr char kName[] = "gfx942";
inline constexpr int kLanes = 64;
inline constexpr int kXcds = 8;
inline constexpr int kLdsBytes = 64 * 1024;
inline constexpr int kLdsBanks = 32;
inline constexpr int kCopyBytes = 4;
inline constexpr f32 kFp8Max = 240.0f;  // FP8 is FNUZ here: e4m3fnuz

// The shape of a tile's matrix instruction unless the tile names another one.
using DefaultShape = MmaShape<32, 32, 8>;

template <>
struct Mma<bf16, bf16, MmaShape<32, 32, 8>> : MmaShape<32, 32, 8> {
  HK_DEVICE static Vec<f32, 16> multiply(Vec<bf16, 4> a, Vec<bf16, 4> b, Vec<f32, 16> c) {
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(bit_cast<Vec<i16, 4>>(a),
                                                    bit_cast<Vec<i16, 4>>(b), c, 0, 0, 0);
  }
};
template <>
struct Mma<f16, f16, MmaShape<32, 32, 8>> : MmaShape<32, 32, 8> {
  HK_DEVICE static Vec<f32, 16> multiply(Vec<f16, 4> a, Vec<f16, 4> b, Vec<f32, 16> c) {
    return __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, 0, 0, 0);
  }
};

// No v_maximum3_f32: NaN wins here as well, in more instructions.
HK_DEVICE f32 max3(f32 a, f32 b, f32 c) {
  return __builtin_elementwise_maximum(__builtin_elementwise_maximum(a, b), c);
}

// No v_permlane32_swap: two trips through the LDS crossbar.
HK_DEVICE void swap_halves(u32& a, u32& b) {
  const int lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  const u32 give = lane < 32 ? b : a;
  const u32 got = __builtin_amdgcn_ds_bpermute((lane ^ 32) * 4, give);
  if (lane < 32)
    b = got;
  else
    a = got;
}

template <int Offset>
HK_DEVICE void read_lds(Vec<u32, 2>& dst, u32 address) {
  asm volatile("ds_read_b64 %0, %1 offset:%2" : "=v"(dst) : "v"(address), "n"(Offset));
}

template <int Offset, class Dst>
HK_DEVICE void read_lds_transposed(Dst&, u32) {
  static_assert(sizeof(Dst) == 0, "gfx942 has no transposed LDS read: transpose while copying");
}

}  // namespace hk::arch
