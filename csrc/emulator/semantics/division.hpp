// The steps of a division: v_div_scale, v_div_fmas with VCC set, v_div_fixup.
//
// The guides' pseudo-code contradicts itself: v_div_fmas multiplies by 2^32 whether v_div_scale has
// scaled the quotient up or down, and by 2^64. These rules are therefore those of AMD's simulator
// (rocjitsu, shared/division.h), whose authors compared them with gfx1100 and gfx1201. With them,
// LLVM's expansion of fdiv gives the correctly rounded quotient.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "semantics/floats.hpp"

namespace hk::emulator::HK_ISA {

// Limits of the rules in exponent fields, and the power of 2 by which they scale.
template <class T>
struct DivisionLimits {
  static constexpr bool kSingle = sizeof(T) == 4;
  static constexpr int kBias = kSingle ? 127 : 1023;
  static constexpr int kFar = kSingle ? 96 : 768, kTiny = kSingle ? 24 : 53;
  static constexpr int kUnder = kSingle ? -150 : -1075;
  static constexpr T kUp = T(kSingle ? 0x1p64 : 0x1p128), kDown = 1 / kUp;
};

// The exponent field; 0: zero or denormal.
inline int exponent(float a) { return int(as_bits(a) >> 23 & 255); }
inline int exponent(double a) { return int(std::bit_cast<uint64_t>(a) >> 52 & 2047); }

// v_div_scale: scales `s0`, which is the denominator `s1` or the numerator `s2`, so that the
// division's Newton steps neither overflow nor lose bits. Sets `out` if the quotient is then off by
// a factor that v_div_fmas must undo.
template <class T>
T division_scaled(T s0, T s1, T s2, bool& out) {
  using Limits = DivisionLimits<T>;
  const int denominator = exponent(s1), numerator = exponent(s2), apart = numerator - denominator;
  const bool of_denominator = s0 == s1;
  const bool large = apart >= Limits::kFar, small = apart <= -Limits::kFar;
  out = large | (small & (denominator != 0));
  // The last assignment that applies counts; without branches, lanes vectorise.
  const T up = s0 * Limits::kUp, down = s0 * Limits::kDown;
  T result = numerator <= Limits::kTiny ? up : s0;
  result = small ? (of_denominator ? s0 : up) : result;
  const bool tiny_reciprocal = denominator >= 2 * Limits::kBias - 1;  // it would be denormal
  result = tiny_reciprocal ? (small & !of_denominator ? s0 : down) : result;
  result = denominator == 0 ? up : result;
  result = large ? (of_denominator ? up : s0) : result;
  return (s1 == 0) | (s2 == 0) ? -std::numeric_limits<T>::quiet_NaN() : result;
}

// v_div_fmas with VCC set: s0 * s1 + s2, scaled up if the quotient s2 is large and down if it is
// small, and rounded once. Newton's steps leave sums very close to halfway, so the wide sum is
// rounded to odd.
template <class T>
T division_scaled_back(T s0, T s1, T s2) {
  using Limits = DivisionLimits<T>;
  if (!std::isfinite(s0) || !std::isfinite(s1) || !std::isfinite(s2)) return std::fma(s0, s1, s2);
  __extension__ typedef __float128 Wide;  // holds the exact product; its range suffices
  __extension__ typedef unsigned __int128 Bits;
  const Wide product = Wide(s0) * Wide(s1), sum = product + Wide(s2), part = sum - product;
  const Wide error = (product - (sum - part)) + (Wide(s2) - part);  // two-sum
  Bits bits = std::bit_cast<Bits>(sum);
  if (error != 0 && !(bits & 1)) bits += (error > 0) == (sum > 0) ? 1 : -1;
  const T scale = exponent(s2) > Limits::kBias ? Limits::kUp : Limits::kDown;
  return T(std::bit_cast<Wide>(bits) * Wide(scale));
}

// v_div_fixup: special cases of s2 / s1, otherwise |s0| with the quotient's sign. A quotient that
// overflowed in the Newton steps arrives as NaN.
template <class T>
T division_fixed(T s0, T s1, T s2) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const T sign = std::signbit(s1) != std::signbit(s2) ? T(-1) : T(1);
  const bool infinite1 = std::fabs(s1) == kInfinity, infinite2 = std::fabs(s2) == kInfinity;
  const bool zero1 = s1 == 0, zero2 = s2 == 0;
  // The last assignment that applies counts; without branches, lanes vectorise.
  T result = sign * (s0 == s0 ? std::fabs(s0) : kInfinity);
  const bool under = exponent(s2) - exponent(s1) < DivisionLimits<T>::kUnder;
  result = under | infinite1 | zero2 ? sign * T(0) : result;
  result = zero1 | infinite2 ? sign * kInfinity : result;
  result =
      (zero1 & zero2) | (infinite1 & infinite2) ? -std::numeric_limits<T>::quiet_NaN() : result;
  result = s1 != s1 ? s1 + s1 : result;
  return s2 != s2 ? s2 + s2 : result;  // quiet
}

// v_div_fixup in f16; its caller handles NaN sources.
inline float division_fixed_half(float s0, float s1, float s2) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float sign = std::signbit(s1) != std::signbit(s2) ? -1.0f : 1.0f;
  if (s2 != s2 || s1 != s1) return std::numeric_limits<float>::quiet_NaN();  // settled by half()
  if ((s1 == 0 && s2 == 0) || (std::fabs(s1) == kInfinity && std::fabs(s2) == kInfinity))
    return std::numeric_limits<float>::quiet_NaN();
  if (s1 == 0 || std::fabs(s2) == kInfinity) return sign * kInfinity;
  if (std::fabs(s1) == kInfinity || s2 == 0) return sign * 0.0f;
  return sign * std::fabs(s0);
}

}  // namespace hk::emulator::HK_ISA
