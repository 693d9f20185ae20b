// exp, log, rcp, rsq, sqrt, sin, cos; and functions on parts of numbers: fract, floor, frexp,
// ldexp.
//
// Hardware computes the first group within 1 ulp. Here results are the double-precision value
// rounded once to nearest. In f32 all but sin and cos flush denormal inputs and results regardless
// of MODE (CDNA ISA guides, "denormals are flushed"; LLVM scales around them in
// AMDGPULegalizerInfo, "needsDenormHandlingF32"). sin, cos and the f16 functions follow MODE.
#include "semantics/lanes.hpp"

namespace hk::emulator::HK_ISA {
namespace {

constexpr double kPi = 3.14159265358979323846, kLog2E = 1.44269504088896340736;

double as_double(int64_t bits) { return std::bit_cast<double>(bits); }

// 2^x within 2^-48 for |x| < 1000, by a series on [-0.5, 0.5], so that lanes vectorise.
inline double exp2_series(double x) {
  const double shifted = x + 0x1.8p52;  // rounds x to the integer in its low bits
  const double fraction = (x - (shifted - 0x1.8p52)) * 0.693147180559945309417;
  double sum = 1.0 / 479001600;  // 1 / 12!
  constexpr double kInverse[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                                 1.0 / 5040,     1.0 / 720,     1.0 / 120,    1.0 / 24,
                                 1.0 / 6,        0.5,           1.0,          1.0};
  for (double inverse : kInverse) sum = sum * fraction + inverse;
  return sum * as_double((std::bit_cast<int64_t>(shifted) + 1023) << 52);
}

inline double exp2_of(float value) {
  const double x = value;
  return value != value ? x : exp2_series(x < -300 ? -300 : x > 300 ? 300 : x);
}

// log2 of a normal positive double, within 2^-48 of the result: 2 atanh((m - 1) / (m + 1)).
inline double log2_series(double x) {
  constexpr int64_t kRootHalf = 0x3fe6a09e667f3bcd;
  const int64_t bits = std::bit_cast<int64_t>(x);
  const int64_t exponent = ((bits - kRootHalf) >> 52);
  const double m = as_double(bits - (exponent << 52));  // in [sqrt(1/2), sqrt(2))
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 1.0 / 23;
  for (int odd = 21; odd >= 1; odd -= 2) sum = sum * square + 1.0 / odd;
  // exponent to double without a conversion of int64, which AVX2 lacks
  const double whole = as_double(0x4338000000000000 + exponent) - 0x1.8p52;
  return whole + 2 * kLog2E * s * sum;
}

inline double log2_of(float value) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double finite = log2_series(value > 0 && value < kInfinity ? double(value) : 1.0);
  const double special = value == 0 ? -kInfinity : value > 0 ? kInfinity : double(NAN);
  const double result = value > 0 && value < kInfinity ? finite : special;
  return value != value ? double(value) : result;
}

// Sine of x turns. x is reduced exactly to a quarter turn, so that whole, half and quarter turns
// give 0 and 1 without an error. Zeros are +0, except sin(-0) (CDNA ISA guides, the examples of
// V_SIN_F32).
double sin_of(float x) {
  if (!std::isfinite(x)) return NAN;
  const double turn = double(x) - std::nearbyint(double(x)), size = std::fabs(turn);
  const double folded = size > 0.25 ? 0.5 - size : size;
  if (folded == 0) return x == 0 ? x : 0.0;
  return std::copysign(std::sin(2 * kPi * folded), turn);
}
double cos_of(float x) {
  if (!std::isfinite(x)) return NAN;
  const double size = std::fabs(double(x) - std::nearbyint(double(x)));
  return size == 0.25 ? 0.0 : std::sin(2 * kPi * (0.25 - size));
}

inline float flushed(float value) {
  const uint32_t bits = as_bits(value);
  return as_float(bits & 0x7f800000u ? bits : bits & 0x80000000u);
}

// Handler of an f32 function. NaN results have one value, or the quiet payload of a NaN source.
template <bool kFlushes = true, class F>
Execute f32(F) {
  return [](Wave& w, const Instruction& in) {
    Row result;
    for_lanes<float>(w, in, [&](int lane, float a) {
      const float x = kFlushes ? flushed(a) : a, exact = float(F{}(x));
      const float value = kFlushes ? flushed(exact) : exact;
      const uint32_t nan = x != x ? quiet_nan(as_bits(x)) : 0xffc00000u;
      result.lane[lane] = value == value ? as_bits(value) : nan;
    });
    finish<float>(w, in, &result);
  };
}

void add_functions(Semantics& all) {
  all["v_exp_f32"] = f32([](float a) { return exp2_of(a); });
  all["v_log_f32"] = f32([](float a) { return log2_of(a); });
  for (const char* name : {"v_rcp_f32", "v_rcp_iflag_f32"})
    all[name] = f32([](float a) { return 1.0f / a; });
  all["v_rsq_f32"] = f32([](float a) { return 1.0 / std::sqrt(double(a)); });
  all["v_sqrt_f32"] = f32([](float a) { return std::sqrt(a); });
  all["v_sin_f32"] = f32<false>([](float a) { return sin_of(a); });
  all["v_cos_f32"] = f32<false>([](float a) { return cos_of(a); });

  all["v_exp_f16"] = half<Of::functions>([](float a) { return exp2_of(a); });
  all["v_log_f16"] = half<Of::functions>([](float a) { return log2_of(a); });
  all["v_rcp_f16"] = half<Of::functions>([](double a) { return 1.0 / a; });
  all["v_rsq_f16"] = half<Of::functions>([](double a) { return 1.0 / std::sqrt(a); });
  all["v_sqrt_f16"] = half<Of::functions>([](double a) { return std::sqrt(a); });
  all["v_sin_f16"] = half<Of::functions>([](float a) { return sin_of(a); });
  all["v_cos_f16"] = half<Of::functions>([](float a) { return cos_of(a); });

  all["v_rcp_f64"] = arithmetic([](double a) { return 1.0 / a; });
  all["v_rsq_f64"] = arithmetic([](double a) { return 1.0 / std::sqrt(a); });
  all["v_sqrt_f64"] = arithmetic([](double a) { return std::sqrt(a); });
}

// Fraction of a number. The ISA promises a result below 1, so 1 becomes the largest number below 1.
template <class T>
T fraction(T a) {
  const T largest = sizeof(T) == 4 ? T(0x1.fffffep-1) : T(0x1.fffffffffffffp-1);
  const T result = a - std::floor(a);
  return result < largest ? result : result == result ? largest : result;
}

// Significand in [0.5, 1) with its sign. Infinity and NaN are their own significand, with exponent
// 0.
template <class T>
T significand(T a) {
  int exponent;
  return std::isfinite(a) ? std::frexp(a, &exponent) : a;
}
template <class T>
int32_t exponent(T a) {
  int exponent = 0;
  if (std::isfinite(a)) std::frexp(a, &exponent);
  return exponent;
}

// Scales by a power of 2, exactly within f32's range. It computes in double, where the product is
// exact, so that results round once.
inline float scaled(float a, int32_t power) {
  const int32_t within = power < -400 ? -400 : power > 400 ? 400 : power;
  return float(double(a) * as_double(int64_t(within + 1023) << 52));
}

void add_parts(Semantics& all) {
  all["v_fract_f32"] = arithmetic([](float a) { return fraction(a); });
  all["v_floor_f32"] = arithmetic([](float a) { return std::floor(a); });
  all["v_ceil_f32"] = arithmetic([](float a) { return std::ceil(a); });
  all["v_trunc_f32"] = arithmetic([](float a) { return std::trunc(a); });
  all["v_rndne_f32"] = plain([](float a) { return std::nearbyint(a); });
  all["v_frexp_mant_f32"] = plain([](float a) { return significand(a); });
  all["v_frexp_exp_i32_f32"] = plain([](float a) { return exponent(a); });
  all["v_ldexp_f32"] = arithmetic([](float a, int32_t b) { return scaled(a, b); });

  all["v_fract_f64"] = arithmetic([](double a) { return fraction(a); });
  all["v_floor_f64"] = arithmetic([](double a) { return std::floor(a); });
  all["v_ceil_f64"] = arithmetic([](double a) { return std::ceil(a); });
  all["v_trunc_f64"] = arithmetic([](double a) { return std::trunc(a); });
  all["v_rndne_f64"] = plain([](double a) { return std::nearbyint(a); });
  all["v_frexp_mant_f64"] = plain([](double a) { return significand(a); });
  all["v_frexp_exp_i32_f64"] = plain([](double a) { return exponent(a); });
  all["v_ldexp_f64"] = arithmetic([](double a, int32_t b) { return std::ldexp(a, b); });

  all["v_fract_f16"] = half<Of::sums>([](float a) {
    const float result = a - std::floor(a);
    return result < 0x1.ffcp-1f ? result : result == result ? 0x1.ffcp-1f : result;
  });
  all["v_floor_f16"] = half([](float a) { return std::floor(a); });
  all["v_ceil_f16"] = half([](float a) { return std::ceil(a); });
  all["v_trunc_f16"] = half([](float a) { return std::trunc(a); });
  all["v_rndne_f16"] = half([](float a) { return std::nearbyint(a); });
  all["v_frexp_mant_f16"] = half([](float a) { return significand(a); });
  all["v_frexp_exp_i16_f16"] =
      plain([](Half a) { return int16_t(exponent(widen<kF16>(uint32_t(a)))); });
  all["v_ldexp_f16"] = half([](float a, int16_t b) {
    return std::ldexp(a, b < -60 ? -60 : b > 60 ? 60 : b);
  });
}

}  // namespace

void add_transcendental(Semantics& all, Arch) {
  add_functions(all);
  add_parts(all);
}

}  // namespace hk::emulator::HK_ISA
