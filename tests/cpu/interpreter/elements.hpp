// Elements of dwords, in AVX-512F: bfloat16 as float32, bytes and words as int32.
#pragma once

#include <immintrin.h>

namespace hk::test {

inline __m512 odd_elements(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(0xFFFF0000)));
}

inline __m512 even_elements(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

// Element number `index` of so many bits, with its sign or without.
inline __m512i integers(__m512i dwords, int bits, int index, bool sign) {
  const __m512i top = _mm512_sllv_epi32(dwords, _mm512_set1_epi32(32 - bits * (index + 1)));
  const __m512i down = _mm512_set1_epi32(32 - bits);
  return sign ? _mm512_srav_epi32(top, down) : _mm512_srlv_epi32(top, down);
}

// sum + the products of all elements of a dword; sums wrap.
inline __m512i integer_dot(__m512i sum, int bits, __m512i a, bool a_sign, __m512i b, bool b_sign) {
  for (int index = 0; index < 32 / bits; ++index) {
    const __m512i product =
        _mm512_mullo_epi32(integers(a, bits, index, a_sign), integers(b, bits, index, b_sign));
    sum = _mm512_add_epi32(sum, product);
  }
  return sum;
}

}  // namespace hk::test
