// Rounds to small floats, to nearest even and saturating. The quantising operators, which store
// codes, and activations, which stay float32, share this implementation.
//
// Runs are float32 and a multiple of kRun long (padded with zeros, which change no scale).
#pragma once

#include "linear/linear_args.hpp"
#include "formats/small_float.hpp"

namespace hk::cpu::HK_ISA {

constexpr int64_t kRun = kSlabK;

HK_INLINE ivec bits_of(vec x) { return reinterpret_cast<ivec>(x); }
HK_INLINE vec float_of(ivec x) { return reinterpret_cast<vec>(x); }
HK_INLINE ivec magnitude_bits(vec x) { return bits_of(x) & 0x7fffffff; }
HK_INLINE ivec larger_of(ivec a, ivec b) { return a > b ? a : b; }

// The larger of two absolute values, or NaN if one is NaN: as an integer, NaN exceeds all numbers.
HK_INLINE float larger(float a, float b) { return to_bits(a) > to_bits(b) ? a : b; }

// Largest absolute value of a run; NaN if the run holds NaN.
HK_INLINE float max_abs(const float* x, int64_t count) {
  ivec top[4] = {};
  for (int64_t i = 0; i < count; i += 4 * VL)
    for (int v = 0; v < 4; ++v)
      if (i + v * VL < count) top[v] = larger_of(top[v], magnitude_bits(load(x + i + v * VL)));
  const ivec all = larger_of(larger_of(top[0], top[1]), larger_of(top[2], top[3]));
  return reduce(float_of(all), [](auto a, auto b) {
    typedef int32_t bits __attribute__((vector_size(sizeof(a))));
    return reinterpret_cast<bits>(a) > reinterpret_cast<bits>(b) ? a : b;
  });
}

// The element nearest to a magnitude of at most the largest element.
//
// Adding 2^23 units in the last place of the element's binade (for denormals, of the smallest
// normal binade) leaves the magnitude as a count of such units. The adder itself rounds it to
// nearest even. The count is all that the code's mantissa and carry need. No multiply feeds the
// addition directly, so it cannot be fused and round differently.
template <class Small>
struct Nearest {
  static constexpr int32_t least = (128 - Small::bias) << 23;  // the smallest normal number

  ivec exponent, counter;
  vec sum;

  HK_INLINE explicit Nearest(ivec magnitude) {
    exponent = larger_of(magnitude & 0x7f800000, ivec{} + least);
    counter = exponent + ((23 - Small::M) << 23);
    sum = float_of(magnitude) + float_of(counter);
  }
  HK_INLINE vec value() const { return sum - float_of(counter); }
  HK_INLINE ivec code() const {
    return bits_of(sum) - counter + ((exponent - least) >> (23 - Small::M));
  }
};

// Rounds values to elements; magnitudes saturate at `limit`, and NaN stays NaN.
template <class Small>
HK_INLINE vec round_value(vec x, float limit) {
  const ivec size = magnitude_bits(x), sign = bits_of(x) ^ size, most = ivec{} + to_bits(limit);
  const vec rounded = Nearest<Small>(size < most ? size : most).value();
  return x == x ? float_of(bits_of(rounded) | sign) : x;
}
template <class Small>
HK_INLINE ivec round_code(vec x, float limit) {
  const ivec size = magnitude_bits(x), most = ivec{} + to_bits(limit);
  const ivec code = Nearest<Small>(size < most ? size : most).code();
  ivec sign = (bits_of(x) ^ size) >> (32 - Small::bits) & (1 << (Small::bits - 1));
  if (Small::nan == NanCode::minus_zero) sign = code > 0 ? sign : ivec{};
  return size > 0x7f800000 ? ivec{} + int32_t(Small::nan_bits) : code | sign;
}

// Calls f(small) with the element type of a format that activations or weights are quantised to.
template <class F>
HK_INLINE void with_small_float(Format format, F f) {
  switch (format) {
    case Format::f8e4m3fnuz: return f(E4M3FNUZ{});
    case Format::mx6e2m3: return f(E2M3{});
    case Format::mx6e3m2: return f(E3M2{});
    case Format::mx4: return f(E2M1{});
    default: return f(E4M3FN{});
  }
}

// ---- fp8: float32 scales ----------------------------------------------------------------------

// Value that a dynamic scale maps the largest element to. For fnuz it is 224 instead of 240, as in
// vLLM's get_fp8_min_max (quant_utils.py).
template <class Small>
constexpr float kFp8Limit = Small::nan == NanCode::minus_zero ? 224.0f : 448.0f;

// The scale of a group whose largest absolute value is `top`.
template <class Small>
HK_INLINE float fp8_scale(float top) {
  constexpr float least = float(1.0 / 512 / kFp8Limit<Small>);
  const float scale = top / kFp8Limit<Small>;
  return scale < least ? least : scale;
}

// Brings elements to units of their scale. vLLM divides in dynamic blocks and otherwise multiplies
// by the reciprocal; the two round differently.
struct Descale {
  float scale;
  bool divide;
  HK_INLINE vec operator()(vec x) const {
    return divide ? x / splat(scale) : x * splat(1.0f / scale);
  }
};

// Rounds a run to the values of fp8 codes, in place.
template <class Small>
HK_INLINE void round_fp8(float* x, int64_t count, Descale descale) {
  for (int64_t i = 0; i < count; i += VL)
    store(x + i, round_value<Small>(descale(load(x + i)), kFp8Limit<Small>));
}

// ---- mx: one e8m0 scale per kRun elements -----------------------------------------------------

constexpr uint32_t kBrokenBlock = 0xff;  // the scale code of a block that holds an infinity or NaN

// The scale code of a block whose largest magnitude is `top`: OCP Microscaling Formats v1.0,
// section 6.3. `even`: the largest value is first rounded to the element's mantissa (AMD Quark).
template <class Small>
HK_INLINE uint32_t mx_scale_code(float top, bool even) {
  uint32_t bits = to_bits(top);
  if (bits >= 0x7f800000) return kBrokenBlock;
  if (even) bits += 1u << (22 - Small::M);
  const uint32_t exponent = bits < 0x7f800000 ? bits >> 23 : 254;  // float32's largest
  const int32_t code = int32_t(exponent) - Small::max_exponent;
  return code > 0 ? uint32_t(code) : 0;
}
HK_INLINE float mx_scale(uint32_t code) { return from_bits(code ? code << 23 : 0x00400000); }
// Inverse of the scale. It is exact and a normal number, since no scale code is above 253.
HK_INLINE float mx_inverse_scale(uint32_t code) { return from_bits((254 - code) << 23); }

// Rounds a run to the values of mx blocks, in place, with scales as in AITER, Quark and vLLM.
template <class Small>
HK_INLINE void round_mx(float* x, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kRun, x += kRun) {
    const uint32_t code = mx_scale_code<Small>(max_abs(x, kRun), true);
    const bool broken = code == kBrokenBlock;
    const vec inverse = splat(broken ? __builtin_nanf("") : mx_inverse_scale(code));
    const vec scale = splat(broken ? 1.0f : mx_scale(code));
    for (int64_t i = 0; i < kRun; i += VL)
      store(x + i, round_value<Small>(load(x + i) * inverse, Small::max()) * scale);
  }
}

}  // namespace hk::cpu::HK_ISA
