// The matrix instructions of MI355X whose A is 4:2 sparse: of every four neighbours along the depth
// it has two, and an index says which.
//
// Source: CDNA4 ISA guide, "Sparse Matrices".
#pragma once

#include "arch.hpp"

namespace hk::arch {

// A lane has a row of A and a column of B. Lanes 16 g to 16 g + 15 hold what A has of the g-th
// quarter of the depth, and the g-th 16 bytes of each half of B's. Their results are rows 4 g to
// 4 g + 3.
inline constexpr int kSparseRows = 16;

// Indices of the elements that a row of A has: the first two of every four, or the last two.
inline constexpr u32 kFirstPairs = 0x44444444, kLastPairs = 0xeeeeeeee;

// C + A B, 64 deep.
HK_DEVICE Vec<f32, 4> multiply_sparse(Vec<bf16, 8> a, Vec<bf16, 16> b, Vec<f32, 4> c, u32 indices) {
  return __builtin_amdgcn_smfmac_f32_16x16x64_bf16(a, b, c, i32(indices), 0, 0);
}

// C + A B, 128 deep, of e4m3 codes.
HK_DEVICE Vec<f32, 4> multiply_sparse_e4m3(Vec<u32, 4> a, Vec<u32, 8> b, Vec<f32, 4> c,
                                           u32 indices) {
  return __builtin_amdgcn_smfmac_f32_16x16x128_fp8_fp8(
      bit_cast<Vec<i32, 4>>(a), bit_cast<Vec<i32, 8>>(b), c, i32(indices), 0, 0);
}

}  // namespace hk::arch
