// Vectors of one instruction set, in the compiler's vector extension: `vec` has the register's
// width, `f8` is always eight floats (the unit of packing).
//
// Only files *_kernel.cpp include this one; they are compiled once per instruction set. Each set
// has its own namespace, so that the linker cannot put an AVX-512 copy of an inline function into
// the portable path.
#pragma once

#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "common/dtype.hpp"
#include "common/inline.hpp"

#define HK_STRING_(x) #x
#define HK_STRING(x) HK_STRING_(x)

namespace hk::cpu::HK_ISA {

#if defined(__AVX512F__)
constexpr int VL = 16;  // floats in a register
#elif defined(__AVX2__)
constexpr int VL = 8;
#else
constexpr int VL = 4;
#endif

// Picks lanes of two registers of one type, numbered from the first one's; returns one register.
#if defined(__clang__) || __GNUC__ >= 12
#define HK_MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else  // Ubuntu 22.04's
#define HK_MIX(a, b, ...) __builtin_shuffle(a, b, decltype((a) < (b)){__VA_ARGS__})
#endif

typedef float vec __attribute__((vector_size(VL * 4)));
typedef int32_t ivec __attribute__((vector_size(VL * 4)));
typedef uint16_t halves __attribute__((vector_size(VL * 4)));
typedef float vec_u __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef float f8 __attribute__((vector_size(32)));
typedef float f8_u __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t u8x32 __attribute__((vector_size(32)));
typedef uint16_t u8x16 __attribute__((vector_size(16)));

constexpr float kNegInf = -__builtin_inff();

HK_INLINE vec load(const float* p) { return *reinterpret_cast<const vec_u*>(p); }
HK_INLINE void store(float* p, vec x) { *reinterpret_cast<vec_u*>(p) = x; }
HK_INLINE vec splat(float x) { return x - vec{}; }
// a > b ? a : b, so that NaN on either side gives b; the compiler does not find the instruction.
HK_INLINE vec max_or_second(vec a, vec b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX__)
  return _mm256_max_ps(a, b);
#elif defined(__SSE2__)
  return _mm_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
// Limits x to a minimum or a maximum; NaN in `x` stays NaN.
HK_INLINE vec at_least(vec x, float low) { return max_or_second(splat(low), x); }
HK_INLINE vec at_most(vec x, float high) { return -max_or_second(splat(-high), -x); }

// Returns the lanes of a register in another order.
template <int... lane>
HK_INLINE vec permuted(vec x) {
  return HK_MIX(x, x, lane...);
}

// Folds the register in halves with `op`.
template <class Op>
HK_INLINE float reduce(vec x, Op op) {
  typedef float f4 __attribute__((vector_size(16)));
  f4 part[VL / 4];
  std::memcpy(part, &x, sizeof(x));
  for (int n = VL / 4; n > 1; n /= 2)
    for (int i = 0; i < n / 2; ++i) part[i] = op(part[i], part[i + n / 2]);
  f4 y = part[0];
  y = op(y, HK_MIX(y, y, 2, 3, 0, 1));
  y = op(y, HK_MIX(y, y, 1, 0, 3, 2));
  return y[0];
}
HK_INLINE float reduce_add(vec x) {
  return reduce(x, [](auto a, auto b) { return a + b; });
}
// Largest lane of a register whose lanes are not NaN.
HK_INLINE float reduce_max(vec x) {
  return reduce(x, [](auto a, auto b) { return a > b ? a : b; });
}

// Lane r of the result is register r folded with `op`; `rows` is at most VL.
#if defined(__AVX512F__)
// Each step makes one register of two, so that a row takes about one fold instead of four.
template <int rows, class Op>
HK_INLINE vec reduce_each(const vec (&row)[rows], Op op) {
  vec x[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) x[r] = row[r < rows ? r : 0];
#pragma GCC unroll 8
  for (int r = 0; r < 8; ++r)
    x[r] = op(HK_MIX(x[r], x[r + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
              HK_MIX(x[r], x[r + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r)
    x[r] = op(HK_MIX(x[r], x[r + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
              HK_MIX(x[r], x[r + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31));
#pragma GCC unroll 2
  for (int r = 0; r < 2; ++r)
    x[r] = op(HK_MIX(x[r], x[r + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
              HK_MIX(x[r], x[r + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
  return op(HK_MIX(x[0], x[1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
            HK_MIX(x[0], x[1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31));
}
#else
template <int rows, class Op>
HK_INLINE vec reduce_each(const vec (&row)[rows], Op op) {
  vec folded{};
  for (int r = 0; r < rows; ++r) folded[r] = reduce(row[r], op);
  return folded;
}
#endif

// ---- storage formats ------------------------------------------------------------------------

struct F32 {
  using type = float;
};
struct F16 {
  using type = uint16_t;
};
struct BF16 {
  using type = uint16_t;
};
struct F8E4M3FN {
  using type = uint8_t;
};
struct F8E5M2 {
  using type = uint8_t;
};

HK_INLINE float from_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
HK_INLINE uint32_t to_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

// A small float with `E` exponent and `M` mantissa bits (IEEE infinities if `ieee`; else only
// the all-ones code is NaN, as in OCP e4m3fn), widened exactly.
template <int E, int M, bool ieee>
HK_INLINE float widen_small(uint32_t code) {
  constexpr int bias = (1 << (E - 1)) - 1;
  const uint32_t sign = code >> (E + M) << 31;
  const uint32_t exponent = code >> M & ((1u << E) - 1);
  const uint32_t mantissa = code & ((1u << M) - 1);
  const uint32_t ones = (1u << E) - 1;
  if (ieee && exponent == ones) return from_bits(sign | 0x7f800000u | mantissa << (23 - M));
  if (!ieee && exponent == ones && mantissa == (1u << M) - 1) return from_bits(sign | 0x7fc00000u);
  if (exponent == 0) {
    const float tiny = mantissa * from_bits(uint32_t(127 + 1 - bias - M) << 23);
    return sign ? -tiny : tiny;
  }
  return from_bits(sign | (exponent + 127 - bias) << 23 | mantissa << (23 - M));
}

HK_INLINE float widen(F32, float x) { return x; }
HK_INLINE float widen(BF16, uint16_t x) { return from_bits(uint32_t(x) << 16); }
HK_INLINE float widen(F8E4M3FN, uint8_t x) { return widen_small<4, 3, false>(x); }
HK_INLINE float widen(F8E5M2, uint8_t x) { return widen_small<5, 2, true>(x); }
HK_INLINE float widen(F16, uint16_t x) {
#if defined(__F16C__)
  return _cvtsh_ss(x);
#else
  return widen_small<5, 10, true>(x);
#endif
}

// Rounds to nearest even, like torch.
HK_INLINE float narrow(F32, float x) { return x; }
HK_INLINE uint16_t narrow(BF16, float x) {
  const uint32_t bits = to_bits(x);
  if (x != x) return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
HK_INLINE uint16_t narrow(F16, float x) {
#if defined(__F16C__)
  return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
#else
  const uint32_t bits = to_bits(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);  // rounds past 65504
  if (magnitude < 0x38800000) {  // below 2^-14: let the FPU round at the subnormal's last place
    const float shifted = from_bits(magnitude) + 0.5f;  // ulp(0.5) is 2^-24
    return uint16_t(sign | (to_bits(shifted) - 0x3f000000));
  }
  return uint16_t(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
#endif
}

// Widens the bfloat16 values in the lower or in the upper halves of lanes.
HK_INLINE vec widen_lower(ivec pair) { return reinterpret_cast<vec>(pair << 16); }
HK_INLINE vec widen_upper(ivec pair) {
  return reinterpret_cast<vec>(pair & (ivec{} + int32_t(0xffff0000)));
}

// Loads eight neighbours and widens them.
template <class T>
HK_INLINE f8 load8(const typename T::type* p) {
  f8 x;
  for (int i = 0; i < 8; ++i) x[i] = widen(T{}, p[i]);
  return x;
}
template <>
HK_INLINE f8 load8<F32>(const float* p) {
  return *reinterpret_cast<const f8_u*>(p);
}
template <>
HK_INLINE f8 load8<BF16>(const uint16_t* p) {
  u8x16 halves;
  std::memcpy(&halves, p, 16);
  return reinterpret_cast<f8>(__builtin_convertvector(halves, u8x32) << 16);
}
#if defined(__F16C__)
template <>
HK_INLINE f8 load8<F16>(const uint16_t* p) {
  return reinterpret_cast<f8>(
      _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
#endif

// Number of neighbours that packing a tile needs: 16 bytes of them, at most eight.
template <class T>
inline constexpr int run_of = sizeof(typename T::type) == 4 ? 4 : 8;

// Loads and widens eight elements: a run at `p` and, if a run is four, another at `next`.
template <class T>
HK_INLINE f8 load_runs(const typename T::type* p, const typename T::type* next) {
  if constexpr (run_of<T> == 8) {
    return load8<T>(p);
  } else {
    f8 x;
    std::memcpy(&x, p, 16);
    std::memcpy(reinterpret_cast<char*>(&x) + 16, next, 16);
    return x;
  }
}

// Narrows eight elements and stores them as neighbours.
template <class T>
HK_INLINE void store8(typename T::type* p, f8 x) {
  for (int i = 0; i < 8; ++i) p[i] = narrow(T{}, x[i]);
}
template <>
HK_INLINE void store8<F32>(float* p, f8 x) {
  *reinterpret_cast<f8_u*>(p) = x;
}
template <>
HK_INLINE void store8<BF16>(uint16_t* p, f8 x) {
  const auto bits = reinterpret_cast<u8x32>(x);
  const u8x32 rounded = bits + 0x7fff + (bits >> 16 & 1);
  const auto halves = __builtin_convertvector((x == x ? rounded : bits | 0x400000) >> 16, u8x16);
  std::memcpy(p, &halves, 16);
}

// Loads a register of neighbours and widens them.
template <class T>
HK_INLINE vec load_run(const typename T::type* from) {
  vec x;
  if constexpr (VL < 8) {
    for (int i = 0; i < VL; ++i) x[i] = widen(T{}, from[i]);
  } else {
    f8 part[VL / 8 ? VL / 8 : 1];
    for (int i = 0; i < VL / 8; ++i) part[i] = load8<T>(from + 8 * i);
    std::memcpy(&x, part, sizeof(x));
  }
  return x;
}
template <>
HK_INLINE vec load_run<F32>(const float* from) {
  return load(from);
}
template <>
HK_INLINE vec load_run<BF16>(const uint16_t* from) {
  typedef uint16_t words __attribute__((vector_size(VL * 2)));
  words x;
  std::memcpy(&x, from, sizeof(x));
  return widen_lower(__builtin_convertvector(x, ivec));
}
#if defined(__AVX512F__)
template <>
HK_INLINE vec load_run<F16>(const uint16_t* from) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_maskz_cvtph_ps(0xffff, halves);  // GCC 12 warns of the form without a mask
}
#endif

// Narrows a register's lanes and stores them as neighbours. AVX512-BF16 treats denormals as zero.
template <class T>
HK_INLINE void store_run(typename T::type* to, vec x) {
  if constexpr (VL < 8) {
    for (int i = 0; i < VL; ++i) to[i] = narrow(T{}, x[i]);
  } else {
    f8 part[VL / 8 ? VL / 8 : 1];
    std::memcpy(part, &x, sizeof(x));
    for (int i = 0; i < VL / 8; ++i) store8<T>(to + 8 * i, part[i]);
  }
}
#if defined(__AVX512BF16__)
template <>
HK_INLINE void store_run<BF16>(uint16_t* to, vec x) {
  const __m256bh rounded = _mm512_cvtneps_pbh(x);
  std::memcpy(to, &rounded, sizeof(rounded));
}
#endif

// Calls `f` with the format of queries and outputs.
template <class F>
HK_INLINE void with_format(DType dtype, F f) {
  if (dtype == DType::f32) return f(F32{});
  if (dtype == DType::f16) return f(F16{});
  f(BF16{});
}

// Calls `f` with the format of keys and values.
template <class F>
HK_INLINE void with_kv_format(DType dtype, F f) {
  if (dtype == DType::f8e4m3fn) return f(F8E4M3FN{});
  if (dtype == DType::f8e5m2) return f(F8E5M2{});
  with_format(dtype, f);
}

HK_INLINE void transpose8(f8 (&x)[8]) {
  f8 t[8], u[8];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = HK_MIX(x[2 * i], x[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    t[2 * i + 1] = HK_MIX(x[2 * i], x[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      u[4 * i + 2 * j] = HK_MIX(t[4 * i + j], t[4 * i + 2 + j], 0, 1, 8, 9, 4, 5, 12, 13);
      u[4 * i + 2 * j + 1] = HK_MIX(t[4 * i + j], t[4 * i + 2 + j], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    x[i] = HK_MIX(u[i], u[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    x[i + 4] = HK_MIX(u[i], u[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

#undef HK_MIX
}  // namespace hk::cpu::HK_ISA
