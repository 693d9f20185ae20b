// The register tile of both multiplies: MR rows of A (any row-major float32) times a panel of B
// (NR neighbouring columns per step), accumulated in MR x NR / VL registers.
#pragma once

#include "common/vec.hpp"

namespace hk::cpu::HK_ISA {

// Size of the tile: NV registers of columns, and rows that leave registers for B and a broadcast.
#if defined(__AVX512F__)
constexpr int MR = 12, NV = 2;
#elif defined(__AVX2__)
constexpr int MR = 6, NV = 2;
#else
constexpr int MR = 4, NV = 2;
#endif
constexpr int NR = NV * VL;

template <int rows>
struct RegisterTile {
  vec at[rows][NV];

  HK_INLINE void zero() {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v) at[r][v] = vec{};
  }

  HK_INLINE void load_from(const float* c, int64_t c_row) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v) at[r][v] = load(c + r * c_row + v * VL);
  }

  // Loads C, each row scaled by its factor.
  HK_INLINE void load_scaled(const float* c, int64_t c_row, const float* factor) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v) at[r][v] = load(c + r * c_row + v * VL) * splat(factor[r]);
  }

  HK_INLINE void store_to(float* c, int64_t c_row) const {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v) store(c + r * c_row + v * VL, at[r][v]);
  }

  // sums += A[:, begin:end] * B[begin:end, panel]
  template <int a_row>
  HK_INLINE void multiply(const float* a, const float* b, int64_t begin, int64_t end) {
    const float* column = b + begin * NR;
#pragma GCC unroll 4
    for (int64_t k = begin; k < end; ++k, column += NR) {
      vec panel[NV];
      for (int v = 0; v < NV; ++v) panel[v] = load(column + v * VL);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const vec x = splat(a[r * a_row + k]);
        for (int v = 0; v < NV; ++v) at[r][v] += x * panel[v];
      }
    }
  }
};

}  // namespace hk::cpu::HK_ISA
