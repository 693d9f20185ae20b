// Elements become codes: brought to units of their scale, saturated, rounded to nearest even. Each
// step gives the bits that the same float32 operation gives on a host
// (hk_backend/reference/linear.py).
#pragma once

#include "pieces.hpp"

namespace hk::quantize {

constexpr f32 kCodeMax = 448.0f;                   // e4m3fn
constexpr f32 kLeastScale = 1.0 / 512 / kCodeMax;  // of those that are computed
constexpr u32 kNanCode = 0x7f;

// The scale of a group whose largest magnitude is `top`; NaN stays NaN.
HK_DEVICE f32 scale_of(f32 top) {
  const f32 scale = top / kCodeMax;
  return scale < kLeastScale ? kLeastScale : scale;
}

// x * (1 / scale), the reciprocal rounded first.
struct Multiplied {
  f32 factor;

  HK_DEVICE explicit Multiplied(f32 scale) : factor(1.0f / scale) {}
  HK_DEVICE Pair operator()(Pair x) const { return x * Pair(factor); }
};

// x / scale, rounded once, for a scale from `scale_of` of a group that x is in. The quotient by the
// reciprocal is off by two last places at most, after one correction by less than one, after two it
// is rounded correctly (Markstein, IBM J. Res. Dev. 34, 1990): a remainder that is not exact
// belongs to a quotient that is far below the smallest code. The remainder is negated, so that
// zeros keep their sign. An infinite scale: all its quotients are zeros, or NaN, before any
// correction.
struct Divided {
  f32 factor, divisor;

  HK_DEVICE explicit Divided(f32 scale)
      : factor(1.0f / scale), divisor(scale == __builtin_inff() ? 0.0f : scale) {}
  HK_DEVICE Pair operator()(Pair x) const {
    Pair quotient = x * Pair(factor);
    static_for<0, 2>([&](auto) HK_INLINED {
      const Pair excess = __builtin_elementwise_fma(quotient, Pair(divisor), -x);
      quotient = __builtin_elementwise_fma(excess, Pair(-factor), quotient);
    });
    return quotient;
  }
};

template <class T, class Unscale>
HK_DEVICE typename Piece<T>::Codes encode(const Piece<T>& piece, const Unscale& unscale) {
  constexpr int kElements = Piece<T>::kElements;
  f32 scaled[kElements];
  Pair faults = {0, 0};  // NaN if any element is NaN or infinite
  static_for<0, kElements / 2>([&](auto i) HK_INLINED {
    const Pair both = unscale(piece.values(i));
    faults = __builtin_elementwise_fma(both, Pair(0), faults);
    scaled[2 * i] = both[0], scaled[2 * i + 1] = both[1];
  });
  typename Piece<T>::Codes nans = 0;
  if (any(__builtin_isnan(faults[0] + faults[1])))
    static_for<0, kElements>([&](auto i) HK_INLINED {
      if (!__builtin_isnan(scaled[i])) return;
      scaled[i] = 0;
      nans[i / 4] |= kNanCode << i % 4 * 8;
    });
  typename Piece<T>::Codes codes;
  static_for<0, Piece<T>::kCodeWords>([&](auto word) HK_INLINED {
    f32 four[4];
    static_for<0, 4>([&](auto i) HK_INLINED {
      four[i] = __builtin_amdgcn_fmed3f(scaled[4 * word + i], -kCodeMax, kCodeMax);
    });
    const i32 low = __builtin_amdgcn_cvt_pk_fp8_f32(four[0], four[1], 0, false);
    codes[word.value] = __builtin_amdgcn_cvt_pk_fp8_f32(four[2], four[3], low, true);
  });
  return codes | nans;
}

}  // namespace hk::quantize
