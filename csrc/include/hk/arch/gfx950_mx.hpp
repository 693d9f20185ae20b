// The instructions of MI355X that products in MX formats need besides those of gfx950.hpp.
//
// Sources: CDNA4 ISA guide (VOP3P-MAI: scaled f8f6f4; DS, MUBUF); LLVM's AMDGPU usage.
#pragma once

#include "../types/mx_codes.hpp"
#include "arch.hpp"

namespace hk::arch {

// The format of an operand of the f8f6f4 instructions, by number (cbsz, blgp).
template <class T>
inline constexpr int kMatrixFormat = -1;
template <>
inline constexpr int kMatrixFormat<E4m3> = 0;
template <>
inline constexpr int kMatrixFormat<E2m3> = 2;
template <>
inline constexpr int kMatrixFormat<E3m2> = 3;
template <>
inline constexpr int kMatrixFormat<E2m1> = 4;

// C + A B for 64 of a row's codes of A and B. Byte `Byte` of a lane's scale word holds the e8m0
// scale of its line's 32 neighbours: the first 32 of the 64 in the lower half of the wave.
template <class A, class B, int Byte>
HK_DEVICE Vec<f32, 16> multiply_scaled(Vec<u32, 8> a, Vec<u32, 8> b, Vec<f32, 16> c, u32 a_scales,
                                       u32 b_scales) {
  return __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(
      bit_cast<Vec<i32, 8>>(a), bit_cast<Vec<i32, 8>>(b), c, kMatrixFormat<A>, kMatrixFormat<B>,
      Byte, a_scales, Byte, b_scales);
}

// The scale of an e8m0 code, byte `Byte` of a word. The instructions below read its exponent alone:
// infinity stands for NaN, and zero for 2^-127.
template <int Byte>
HK_DEVICE f32 scale_of_code(u32 codes) {
  return bit_cast<f32>((codes >> 8 * Byte & 255) << 23);
}

// 32 codes of a row times a scale, as bf16.
template <class W>
HK_DEVICE Vec<u32, 16> widen_codes(Vec<u32, 8> codes, f32 scale) {
  if constexpr (is_same<W, E2m3>) {
    return bit_cast<Vec<u32, 16>>(__builtin_amdgcn_cvt_scalef32_pk32_bf16_fp6(
        __builtin_shufflevector(codes, codes, 0, 1, 2, 3, 4, 5), scale));
  } else if constexpr (is_same<W, E3m2>) {
    return bit_cast<Vec<u32, 16>>(__builtin_amdgcn_cvt_scalef32_pk32_bf16_bf6(
        __builtin_shufflevector(codes, codes, 0, 1, 2, 3, 4, 5), scale));
  } else {
    Vec<u32, 16> wide;
    static_for<0, 16>([&](auto i) {
      if constexpr (is_same<W, E2m1>)
        wide[i.value] =
            bit_cast<u32>(__builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(codes[i / 4], scale, i % 4));
      else
        wide[i.value] =
            bit_cast<u32>(__builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(codes[i / 2], scale, i % 2));
    });
    return wide;
  }
}

template <int Offset>
HK_DEVICE void read_lds(Vec<u32, 2>& dst, u32 address) {
  asm volatile("ds_read_b64 %0, %1 offset:%2" : "=v"(dst) : "v"(address), "n"(Offset));
}

// Starts a load of a word, which counts in `wait_copies`. `dst` holds nothing until then, and a pin
// behind it.
HK_DEVICE void load_word(u32& dst, __amdgpu_buffer_rsrc_t src, u32 offset) {
  asm volatile("buffer_load_dword %0, %1, %2, 0 offen" : "=v"(dst) : "v"(offset), "s"(src));
}

}  // namespace hk::arch
