// The register tile in bfloat16: a few rows of A times a panel of B, with sums in float32. A 32-bit
// lane holds two neighbours along K; one instruction (vdpbf16ps) adds both of their products.
//
// vdpbf16ps rounds to nearest even and treats denormals as zero, whatever MXCSR says. It first adds
// the product of a lane's odd element. Source: Intel 64 and IA-32 SDM, VDPBF16PS.
#pragma once

#include "common/micro_gemm.hpp"

namespace hk::cpu::HK_ISA {

#if defined(__AVX512BF16__)

constexpr bool kHasPairs = true;

HK_INLINE ivec load_pairs(const uint16_t* from) {
  ivec pairs;
  std::memcpy(&pairs, from, sizeof(pairs));
  return pairs;
}
HK_INLINE ivec splat_pair(const uint16_t* from) {
  int32_t pair;
  std::memcpy(&pair, from, sizeof(pair));
  return ivec{} + pair;
}
// Makes bfloat16 pairs of two rows of float32 values that bfloat16 holds exactly.
HK_INLINE ivec exact_pairs(vec even, vec odd) {
  const auto low = reinterpret_cast<ivec>(even), high = reinterpret_cast<ivec>(odd);
  return (low >> 16 & 0xffff) | (high & int32_t(0xffff0000));
}

// Rows of a tile, which leave registers for two of B and a broadcast.
constexpr int kPairRows = 14;

template <int rows>
struct PairTile : RegisterTile<rows> {
  using RegisterTile<rows>::at;

  // sums += A[:, begin:end] * B[begin:end, panel]; rows of A are `a_row` apart, `begin` and `end`
  // even.
  HK_INLINE void multiply(const uint16_t* a, int64_t a_row, const uint16_t* b, int64_t begin,
                          int64_t end) {
    const uint16_t* column = b + begin * NR;
#pragma GCC unroll 4
    for (int64_t k = begin; k < end; k += 2, column += 2 * NR) add_step(*this, a, a_row, column, k);
  }

  // Multiplies over a tile's whole depth; calls `step` after every slab of 32 elements.
  template <class F>
  HK_INLINE void multiply_deep(const uint16_t* a, int64_t a_row, const uint16_t* b, int64_t begin,
                               int64_t end, F step) {
    for (int64_t slab = begin; slab < end; slab += 32, step())
      multiply(a, a_row, b, slab, slab + 32);
  }

 private:
  static HK_INLINE void add_step(PairTile& sums, const uint16_t* a, int64_t a_row,
                                 const uint16_t* column, int64_t k) {
    ivec panel[NV];
    for (int v = 0; v < NV; ++v) panel[v] = load_pairs(column + 2 * v * VL);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const ivec x = splat_pair(a + r * a_row + k);
      for (int v = 0; v < NV; ++v)
        sums.at[r][v] = _mm512_dpbf16_ps(sums.at[r][v], (__m512bh)x, (__m512bh)panel[v]);
    }
  }
};

#else

constexpr bool kHasPairs = false;

#endif

}  // namespace hk::cpu::HK_ISA
