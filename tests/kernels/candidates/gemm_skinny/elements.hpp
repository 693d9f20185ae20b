// The products of a step of 16 rows with 16 columns, by the type of their elements.
#pragma once

#include "../kernels/gemm/stream.hpp"
#include "hk/arch/gfx950_sparse.hpp"

namespace hk::gemm_skinny {

inline constexpr int kStepBytes = 128;  // of a row

using Sums = Vec<f32, 4>;
using Words = Vec<u32, 4>;

// A lane's bytes of a step of one column, or of a dense row: 16 of each half.
struct Line {
  Words halves[2];

  HK_DEVICE Vec<u32, 8> words() const {
    return __builtin_shufflevector(halves[0], halves[1], 0, 1, 2, 3, 4, 5, 6, 7);
  }
};

struct Bf16 {
  using A = bf16;
  static constexpr int kStep = 64;

  // First pairs of elements in even words, last pairs in odd ones.
  HK_DEVICE static Words pairs(Words row) { return row; }

  HK_DEVICE static Sums sparse(Words a, const Line& w, Sums sums, u32 indices) {
    return arch::multiply_sparse(bit_cast<Vec<bf16, 8>>(a), bit_cast<Vec<bf16, 16>>(w.words()),
                                 sums, indices);
  }

  HK_DEVICE static Sums dense(const Line& a, const Line& w, Sums sums) {
    static_for<0, 2>([&](auto i) {
      sums = __builtin_amdgcn_mfma_f32_16x16x32_bf16(
          bit_cast<Vec<bf16, 8>>(a.halves[i]), bit_cast<Vec<bf16, 8>>(w.halves[i]), sums, 0, 0, 0);
    });
    return sums;
  }
};

struct Fp8 {
  using A = E4m3;
  static constexpr int kStep = 128;

  HK_DEVICE static Words pairs(Words row) {
    Words pairs;
    static_for<0, 2>([&](auto i) {
      constexpr u32 kLow = 0x05040100, kHigh = 0x07060302;  // halves of both words
      pairs[2 * i.value] = __builtin_amdgcn_perm(row[2 * i + 1], row[2 * i], kLow);
      pairs[2 * i.value + 1] = __builtin_amdgcn_perm(row[2 * i + 1], row[2 * i], kHigh);
    });
    return pairs;
  }

  HK_DEVICE static Sums sparse(Words a, const Line& w, Sums sums, u32 indices) {
    return arch::multiply_sparse_e4m3(a, w.words(), sums, indices);
  }

  HK_DEVICE static Sums dense(const Line& a, const Line& w, Sums sums) {
    return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
        bit_cast<Vec<i32, 8>>(a.words()), bit_cast<Vec<i32, 8>>(w.words()), sums, 0, 0, 0, 0, 0, 0);
  }
};

}  // namespace hk::gemm_skinny
