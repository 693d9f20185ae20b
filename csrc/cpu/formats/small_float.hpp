// Small floats of quantised weights and activations: a sign, `E` exponent and `M` mantissa bits.
#pragma once

#include "common/vec.hpp"

namespace hk::cpu::HK_ISA {

// Codes of NaN in a format. None of these formats has infinities.
enum class NanCode { none, ones, minus_zero };

template <int exponent_bits, int mantissa_bits, int exponent_bias, NanCode nan_code>
struct SmallFloat {
  static constexpr int E = exponent_bits, M = mantissa_bits, bias = exponent_bias;
  static constexpr int bits = 1 + E + M;
  static constexpr int max_exponent = (1 << E) - 1 - bias;
  static constexpr NanCode nan = nan_code;
  static constexpr uint32_t nan_bits = nan == NanCode::ones ? (1u << (E + M)) - 1 : 1u << (E + M);

  static constexpr bool is_nan(uint32_t code) {
    constexpr uint32_t sign = 1u << (E + M);
    if (nan == NanCode::ones) return (code | sign) == 2 * sign - 1;
    return nan == NanCode::minus_zero && code == sign;
  }
  // The exact value of a code; the bits of a float32 power of two are set, so nothing is rounded.
  static constexpr float value(uint32_t code) {
    if (is_nan(code)) return __builtin_nanf("");
    const uint32_t exponent = code >> M & ((1u << E) - 1), mantissa = code & ((1u << M) - 1);
    const uint32_t significand = exponent ? mantissa | 1u << M : mantissa;
    const uint32_t power = (exponent ? exponent : 1) + 127 - bias - M;
    const float size = float(significand) * __builtin_bit_cast(float, power << 23);
    return code >> (E + M) ? -size : size;
  }
  static constexpr float max() { return value((1u << (E + M)) - (nan == NanCode::ones ? 2 : 1)); }
  // Elements times `unit` are whole numbers, at most `most`.
  static constexpr int unit = 1 << (M + bias - 1);
  static constexpr int most() { return int(max() * unit); }
  static constexpr bool fits_a_byte() { return 2 * most() < 256; }  // after `most` is added
};

using E4M3FN = SmallFloat<4, 3, 7, NanCode::ones>;
using E4M3FNUZ = SmallFloat<4, 3, 8, NanCode::minus_zero>;
using E2M3 = SmallFloat<2, 3, 1, NanCode::none>;
using E3M2 = SmallFloat<3, 2, 3, NanCode::none>;
using E2M1 = SmallFloat<2, 1, 1, NanCode::none>;

}  // namespace hk::cpu::HK_ISA
