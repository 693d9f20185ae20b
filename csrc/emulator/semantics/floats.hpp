// Number formats narrower than f32, and rounding to them. They use pure integer arithmetic, so that
// every host gives the same bits and loops over lanes vectorise.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "semantics/semantics.hpp"

namespace hk::emulator::HK_ISA {

// Rounding modes, with the numbers of the MODE register.
enum class Rounding : uint8_t { nearest_even, up, down, toward_zero };

// A number format: a sign, `exponent` bits with `bias`, and `mantissa` bits.
struct Format {
  int exponent, mantissa, bias;
  // Meaning of the largest exponent field. ieee: infinity and NaN. ocp (e4m3fn): numbers, and one
  // NaN. none (fp6, fp4): only numbers. fnuz: only numbers; the code of -0 is the only NaN.
  enum Top : uint8_t { ieee, ocp, none, fnuz } top;

  constexpr int bits() const { return 1 + exponent + mantissa; }
  constexpr uint32_t sign() const { return 1u << (exponent + mantissa); }
  constexpr uint32_t largest() const {  // largest finite number
    const uint32_t all = sign() - 1;
    if (top == ieee) return all - (1u << mantissa);
    return top == ocp ? all - 1 : all;
  }
  constexpr uint32_t nan() const {
    if (top == ieee) return sign() - (1u << (mantissa - 1));
    return top == fnuz ? sign() : sign() - 1;
  }
};
inline constexpr Format kF16{5, 10, 15, Format::ieee}, kBf16{8, 7, 127, Format::ieee},
    kFp8{4, 3, 7, Format::ocp}, kBf8{5, 2, 15, Format::ieee},           // gfx950
    kFp8Fnuz{4, 3, 8, Format::fnuz}, kBf8Fnuz{5, 2, 16, Format::fnuz},  // gfx942
    kFp6{2, 3, 1, Format::none}, kBf6{3, 2, 3, Format::none}, kFp4{2, 1, 1, Format::none};

inline float as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t as_bits(float value) { return std::bit_cast<uint32_t>(value); }

// Widens a number exactly. NaN payloads are kept, signalling ones included.
template <Format F>
inline float widen(uint32_t bits) {
  if constexpr (F.exponent == 8) {
    return as_float(bits << 16);
  } else {
    const uint32_t magnitude = bits & (F.sign() - 1), sign = (bits & F.sign()) << (32 - F.bits());
    const uint32_t aligned = magnitude << (23 - F.mantissa);
    // a denormal is mantissa * 2^(1 - bias - mantissa bits): an exact product
    const float small =
        float(int32_t(magnitude)) * as_float(uint32_t(127 + 1 - F.bias - F.mantissa) << 23);
    uint32_t wide = aligned + (uint32_t(127 - F.bias) << 23);
    wide = magnitude < (1u << F.mantissa) ? as_bits(small) : wide;
    if constexpr (F.top == Format::ieee)
      wide = magnitude >= F.sign() - (1u << F.mantissa) ? aligned | 0x7f800000u : wide;
    if constexpr (F.top == Format::ocp) wide = magnitude == F.sign() - 1 ? 0x7fc00000u : wide;
    if constexpr (F.top == Format::fnuz)
      return as_float(bits == F.sign() ? 0x7fc00000u : wide | sign);
    return as_float(wide | sign);
  }
}

// Rounds a number once. `saturate`: numbers beyond the largest become the largest, and so do
// infinities if the format has none. Otherwise they become infinity, or NaN if the format has none.
// Quiet NaNs keep their upper payload bits.
template <Format F>
inline uint32_t narrow(float value, Rounding rounding = Rounding::nearest_even,
                       bool saturate = false) {
  const uint32_t bits = as_bits(value), magnitude = bits & 0x7fffffffu;
  const uint32_t sign = bits >> (32 - F.bits()) & F.sign();
  constexpr int kDrop = 23 - F.mantissa;
  constexpr int kLeast = 128 - F.bias;  // f32 exponent field of the smallest normal
  // a denormal result drops more bits; beyond 24 bits only "something below" remains
  const int exponent = int(magnitude >> 23);
  uint32_t significand = (magnitude & 0x7fffffu) | (exponent ? 0x800000u : 0u);
  int below = kLeast - (exponent ? exponent : 1);
  below = below < 0 ? 0 : below > 25 - kDrop ? 25 - kDrop : below;
  const int drop = kDrop + below;
  const uint32_t half = 1u << (drop - 1), rest = significand & ((1u << drop) - 1);
  const uint32_t kept = significand >> drop;
  const bool negative = bits >> 31;
  const bool directed = rounding == (negative ? Rounding::down : Rounding::up);
  const uint32_t round = rounding == Rounding::nearest_even
                             ? rest > half || (rest == half && (kept & 1))
                             : directed && rest != 0;
  // kept's leading one carries into the exponent field, and so does rounding
  const int field = exponent - kLeast < 0 ? 0 : exponent - kLeast;
  uint32_t result = kept + round + (uint32_t(field) << F.mantissa);
  const bool away = rounding == Rounding::nearest_even || directed;
  const bool infinite = magnitude == 0x7f800000u;
  if (infinite || result > F.largest()) {
    if constexpr (F.top == Format::ieee)
      result = saturate && !infinite ? F.largest()
               : infinite || away    ? F.sign() - (1u << F.mantissa)
                                     : F.largest();
    else
      result = saturate || F.top == Format::none ? F.largest() : F.nan();
  }
  if (magnitude > 0x7f800000u) {
    if constexpr (F.top == Format::ieee)
      result = (magnitude >> kDrop & (F.sign() - 1)) | F.nan();
    else
      result = F.top == Format::none ? F.largest() : F.nan();
  }
  if constexpr (F.top == Format::fnuz)
    return result == 0 || result == F.nan() ? result : result | sign;
  return result | sign;
}

// The double nearest to a*b + c whose last bit is odd, unless the result is exact. Rounding it
// again to f32 or less gives the same as a single rounding of the exact value (Boldo, Melquiond
// 2008). It needs products that are exact in double, and the host's round-to-nearest.
inline double fma_to_odd(double product, double c) {
  const double sum = product + c;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (c - part);  // two-sum: exact
  const int64_t bits = std::bit_cast<int64_t>(sum);
  const bool toward = (error > 0) == (sum > 0);
  const int64_t odd = bits + (toward ? 1 : -1);
  const bool adjust = error != 0 && !(bits & 1) && std::fabs(sum) <= 1.7976931348623157e308;
  return std::bit_cast<double>(adjust ? odd : bits);
}

// Rounds a double to f32 by the same rule.
inline float to_odd(double value) {
  const float near = float(value);
  const uint32_t bits = as_bits(near);
  const double back = near;
  const bool larger = std::fabs(value) > std::fabs(back);
  const bool adjust = back != value && !(bits & 1) && value == value;
  return as_float(adjust ? (larger ? bits + 1 : bits - 1) : bits);
}

}  // namespace hk::emulator::HK_ISA
