// Converts weights of eight bits to pairs of bfloat16 along K, without going through float32.
//
// A code's exponent and mantissa move to their places in bfloat16, and the difference of the two
// biases is added to the exponent. Denormal codes are looked up, since they have to be normalised.
// The scale of an mx block is a power of two, so it is added to the exponents as well.
#pragma once

#include "formats/weight_format.hpp"

namespace hk::cpu::HK_ISA {

#if defined(__AVX512BF16__)

template <class Small>
struct BytePairs {
  static constexpr int kExponentBit = 7;  // lowest exponent bit of bfloat16
  static constexpr int kMantissaShift = kExponentBit - Small::M;
  static constexpr int kNormal = 1 << kExponentBit;  // the smallest normal code, shifted
  static constexpr int kBiases = (127 - Small::bias) << kExponentBit;

  // Pairs along K of sixteen columns, from the register that holds all 32 columns (ByteWeight). A
  // 32-bit lane is a column's pair. `half` 0 has the first columns.
  template <int half>
  static HK_INLINE __m512i pairs(__m512i stored) {
    const __m512i in_upper_bytes = _mm512_shuffle_epi8(columns<half>(stored), upper_bytes());
    const __m512i exponent = _mm512_srli_epi16(in_upper_bytes, 3);
    const __m512i last_bit =
        _mm512_and_si512(_mm512_srli_epi16(in_upper_bytes, 14 - kMantissaShift),
                         _mm512_set1_epi16(1 << kMantissaShift));
    // (exponent & mask) | last_bit
    const __m512i code =
        _mm512_ternarylogic_epi32(exponent, _mm512_set1_epi16(0x07e0), last_bit, 0xea);
    const __m512i normal = _mm512_add_epi16(code, _mm512_set1_epi16(kBiases));
    const __mmask32 denormal = _mm512_cmplt_epu16_mask(code, _mm512_set1_epi16(kNormal));
    const __m512i size = _mm512_mask_permutexvar_epi16(
        normal, denormal, _mm512_srli_epi16(code, kMantissaShift), denormals());
    // size | (in_upper_bytes & sign)
    return _mm512_ternarylogic_epi32(size, in_upper_bytes, _mm512_set1_epi16(short(0x8000)), 0xf8);
  }

  // Multiplies the pairs of each column by 2^power; zero stays zero.
  static HK_INLINE __m512i scaled(__m512i pairs, __m512i powers) {
    const __mmask32 nonzero = _mm512_test_epi16_mask(pairs, _mm512_set1_epi16(0x7fff));
    return _mm512_mask_add_epi16(pairs, nonzero, pairs, powers);
  }

 private:
  // Copies each of two 128-bit lanes, which hold eight columns, to two lanes of the result.
  template <int half>
  static HK_INLINE __m512i columns(__m512i stored) {
    return _mm512_shuffle_i64x2(stored, stored, half ? 0xfa : 0x50);
  }
  // Byte order that puts codes into the upper bytes of words. An even lane gets its first four
  // columns, an odd lane its last four. Each column has its element k, then k + 1.
  static HK_INLINE __m512i upper_bytes() {
    const __m256i two_lanes =
        _mm256_setr_epi8(-1, 0, -1, 8, -1, 1, -1, 9, -1, 2, -1, 10, -1, 3, -1, 11,  //
                         -1, 4, -1, 12, -1, 5, -1, 13, -1, 6, -1, 14, -1, 7, -1, 15);
    return _mm512_broadcast_i64x4(two_lanes);
  }
  static HK_INLINE __m512i denormals() {
    alignas(64) uint16_t table[32] = {};
    for (uint32_t code = 0; code < 1u << Small::M; ++code)
      table[code] = uint16_t(__builtin_bit_cast(uint32_t, Small::value(code)) >> 16);
    return _mm512_load_si512(table);
  }
};

// Whether every element of the mx blocks, times its scale, is zero or a normal number of bfloat16.
HK_INLINE bool scales_are_moderate(const uint8_t* scales) {
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales));
  const __m256i above = _mm256_sub_epi8(codes, _mm256_set1_epi8(127 - 100));
  return _mm256_cmpgt_epu8_mask(above, _mm256_set1_epi8(char(200))) == 0;
}

// Expands one slab of a panel to pairs, [K / 2][NR].
template <class Small, bool mx>
HK_INLINE void expand_byte_pairs(const uint8_t* slab, uint16_t* out) {
  using Pairs = BytePairs<Small>;
  __m512i powers[NV] = {};
  if constexpr (mx)
    for (int v = 0; v < NV; ++v) {
      const auto power = reinterpret_cast<__m512i>((load_lanes(slab + v * VL) - 127) << 7 & 0xffff);
      powers[v] = _mm512_or_si512(power, _mm512_slli_epi32(power, 16));
    }
  const uint8_t* codes = slab + (mx ? NR : 0);
#pragma GCC unroll 4
  for (int64_t k = 0; k < kSlabK; k += 2, codes += 2 * NR) {
    const __m512i stored = _mm512_loadu_si512(codes);
    __m512i pairs[NV] = {Pairs::template pairs<0>(stored), Pairs::template pairs<1>(stored)};
    for (int v = 0; v < NV; ++v) {
      if constexpr (mx) pairs[v] = Pairs::scaled(pairs[v], powers[v]);
      _mm512_storeu_si512(out + k * NR + 2 * v * VL, pairs[v]);
    }
  }
}

#endif

}  // namespace hk::cpu::HK_ISA
