// The instructions of MI355X (gfx950, CDNA4): matrix shapes, copies to LDS, transposed LDS reads.
//
// Sources: CDNA4 ISA guide (VOP3P-MAI, DS, MUBUF chapters); LLVM's AMDGPU usage for the builtins.
#pragma once

#include "gfx9.hpp"
#include "matrix.hpp"

namespace hk::arch {

using Current = Gfx950;
inline constexpr char kName[] = "gfx950";
inline constexpr int kLanes = 64;
inline constexpr int kXcds = 8;
inline constexpr int kLdsBytes = 160 * 1024;
inline constexpr int kLdsBanks = 64;    // of 4 bytes
inline constexpr int kCopyBytes = 16;   // per lane, of one global-to-LDS copy
inline constexpr f32 kFp8Max = 448.0f;  // FP8 is OCP's here: e4m3fn

// The shape of a tile's matrix instruction unless the tile names another one.
using DefaultShape = MmaShape<32, 32, 16>;

template <>
struct Mma<bf16, bf16, MmaShape<32, 32, 16>> : MmaShape<32, 32, 16> {
  HK_DEVICE static Vec<f32, 16> multiply(Vec<bf16, 8> a, Vec<bf16, 8> b, Vec<f32, 16> c) {
    return __builtin_amdgcn_mfma_f32_32x32x16_bf16(a, b, c, 0, 0, 0);
  }
};
template <>
struct Mma<f16, f16, MmaShape<32, 32, 16>> : MmaShape<32, 32, 16> {
  HK_DEVICE static Vec<f32, 16> multiply(Vec<f16, 8> a, Vec<f16, 8> b, Vec<f32, 16> c) {
    return __builtin_amdgcn_mfma_f32_32x32x16_f16(a, b, c, 0, 0, 0);
  }
};

// 64 of a row's e4m3 codes at once, 32 neighbours of them in each half: C + A B, without scales.
HK_DEVICE Vec<f32, 16> multiply_e4m3(Vec<u32, 8> a, Vec<u32, 8> b, Vec<f32, 16> c) {
  return __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(
      bit_cast<Vec<i32, 8>>(a), bit_cast<Vec<i32, 8>>(b), c, 0, 0, 0, 0, 0, 0);
}

// v_maximum3_f32: NaN wins, and no operand needs quieting first.
HK_DEVICE f32 max3(f32 a, f32 b, f32 c) {
  return __builtin_elementwise_maximum(__builtin_elementwise_maximum(a, b), c);
}

// Exchanges a's upper 32 lanes with b's lower 32 lanes.
HK_DEVICE void swap_halves(u32& a, u32& b) {
  const auto swapped = __builtin_amdgcn_permlane32_swap(a, b, false, false);
  a = swapped[0];
  b = swapped[1];
}

// LDS reads are inline assembly: before C++ reads LLVM waits for every copy to LDS in flight.
// `dst` holds nothing until `wait_lds` has named it.
template <int Offset>
HK_DEVICE void read_lds(Vec<u32, 4>& dst, u32 address) {
  asm volatile("ds_read_b128 %0, %1 offset:%2" : "=v"(dst) : "v"(address), "n"(Offset));
}

// Reads 4 rows x 16 columns, which the addresses of 16 lanes cover (4 lanes a row, 8 bytes each):
// lane i gets column i%16.
template <int Offset>
HK_DEVICE void read_lds_transposed(Vec<u32, 2>& dst, u32 address) {
  asm volatile("ds_read_b64_tr_b16 %0, %1 offset:%2" : "=v"(dst) : "v"(address), "n"(Offset));
}

// Two of a word's four e4m3 codes as elements of a 16-bit type, which has all of their values.
template <class T, bool High>
HK_DEVICE u32 widen_e4m3(u32 codes) {
  if constexpr (is_same<T, bf16>)
    return bit_cast<u32>(__builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(codes, 1.0f, High));
  else
    return bit_cast<u32>(__builtin_amdgcn_cvt_scalef32_pk_f16_fp8(codes, 1.0f, High));
}

}  // namespace hk::arch
