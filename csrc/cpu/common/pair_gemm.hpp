// The register tile in bfloat16: MR rows of A times a panel of B, sums in float32. A 32-bit lane
// holds two neighbours along K, of which one instruction (vdpbf16ps) adds both products.
//
// vdpbf16ps rounds to nearest even and takes denormals for zero, whatever MXCSR says; of a lane's
// two products it adds the odd element's first. Source: Intel 64 and IA-32 SDM, VDPBF16PS.
#pragma once

#include "common/micro_gemm.hpp"

namespace hk::cpu::HK_ISA {

// Elements along K that a multiply takes at a time: in 48 KiB of first cache the panel's block stays
// while the rows of a register tile pass, 12 for vectors and 32 for AMX.
#if defined(__AMX_BF16__)
constexpr int64_t kPairBlock = 256;
#else
constexpr int64_t kPairBlock = 512;
#endif

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
// Two rows of float32 values that bfloat16 holds exactly, as pairs.
HK_INLINE ivec exact_pairs(vec even, vec odd) {
  const auto low = reinterpret_cast<ivec>(even), high = reinterpret_cast<ivec>(odd);
  return (low >> 16 & 0xffff) | (high & int32_t(0xffff0000));
}

template <int rows>
struct PairTile : RegisterTile<rows> {
  using RegisterTile<rows>::at;

  // += A[:, begin:end] * B[begin:end, panel]; `begin` and `end` are even.
  template <int a_row>
  HK_INLINE void multiply(const uint16_t* a, const uint16_t* b, int64_t begin, int64_t end) {
    const uint16_t* column = b + begin * NR;
#pragma GCC unroll 4
    for (int64_t k = begin; k < end; k += 2, column += 2 * NR) {
      ivec panel[NV];
      for (int v = 0; v < NV; ++v) panel[v] = load_pairs(column + 2 * v * VL);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const ivec x = splat_pair(a + r * a_row + k);
        for (int v = 0; v < NV; ++v) add_pairs(at[r][v], x, panel[v]);
      }
    }
  }

  static HK_INLINE void add_pairs(vec& sum, ivec x, ivec y) {
    sum = _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y);
  }
};

#else

constexpr bool kHasPairs = false;

#endif

}  // namespace hk::cpu::HK_ISA
