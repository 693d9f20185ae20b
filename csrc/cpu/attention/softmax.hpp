// Base-2 exponential and the row operations of an online softmax, on rows of float32 scores.
#pragma once

#include "common/vec.hpp"

namespace hk::cpu::HK_ISA {

constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2 = 0.69314718055994531f;

// 2^x for x <= 127: relative error 2^-22, exactly 0 below 2^-127 (no denormals), NaN stays NaN.
// Split x = n + r with |r| <= 1/2; n is read from the low bits of x + 1.5 * 2^23.
HK_INLINE vec exp2(vec x) {
  x = at_least(x, -127.0f);
  const vec magic = splat(12582912.0f);
  const vec shifted = x + magic;
  const vec r = x - (shifted - magic);
  // minimax of (2^r - 1) / r on [-1/2, 1/2] for the relative error of 2^r
  vec p = splat(0.0013264724984765053f);
  p = p * r + splat(0.009671512991189957f);
  p = p * r + splat(0.05550733581185341f);
  p = p * r + splat(0.24022242426872253f);
  p = p * r + splat(0.6931470036506653f);
  p = p * r + splat(1.0f);
  const ivec power = (reinterpret_cast<ivec>(shifted) << 23) + 0x3f800000;
  return p * reinterpret_cast<vec>(power);
}

HK_INLINE float exp2(float x) { return exp2(splat(x))[0]; }

// cap * tanh(x / cap), in units of log2: what follows is a base-2 exponential.
inline void soft_cap(float* row, int64_t begin, int64_t end, float cap) {
  const vec to_exponent = splat(2.0f * kLog2E / cap), top = splat(cap * kLog2E);
  for (int64_t k = begin; k < end; k += VL) {
    const vec e = exp2(at_most(load(row + k) * to_exponent, 126.0f));
    store(row + k, top * ((e - 1.0f) / (e + 1.0f)));
  }
}

// Adds slope * (key position - query position); `offset` is that difference at `begin` = 0.
inline void add_alibi(float* row, int64_t begin, int64_t end, float slope, float offset) {
  for (int64_t k = begin; k < end; ++k) row[k] += slope * (offset + float(k));
}

// The largest score; NaN does not count (the exponential that follows brings it back).
HK_INLINE float row_max(const float* row, int64_t begin, int64_t end) {
  constexpr int kChains = 4;  // hides the latency of one comparison behind the others
  vec top[kChains];
  for (auto& t : top) t = splat(kNegInf);
  int64_t k = begin;
  for (; k + kChains * VL <= end; k += kChains * VL)
#pragma GCC unroll 4
    for (int i = 0; i < kChains; ++i) {
      const vec x = load(row + k + i * VL);
      top[i] = max_or_second(x, top[i]);
    }
  for (; k < end; k += VL) {
    const vec x = load(row + k);
    top[0] = max_or_second(x, top[0]);
  }
  for (int i = 1; i < kChains; ++i) top[0] = max_or_second(top[i], top[0]);
  return reduce_max(top[0]);
}

HK_INLINE void store_weights(float* to, vec p) { store(to, p); }
#if defined(__AVX512BF16__)
HK_INLINE void store_weights(uint16_t* to, vec p) { store_run<BF16>(to, p); }
#endif

// weights = 2^(row * factor - top), rounded to their type; returns the sum of the unrounded ones.
template <class weight>
HK_INLINE float row_exp2(const float* row, weight* weights, int64_t begin, int64_t end,
                         float factor, float top) {
  vec sum = vec{};
  for (int64_t k = begin; k < end; k += VL) {
    const vec p = exp2(load(row + k) * splat(factor) - splat(top));
    store_weights(weights + k, p);
    sum += p;
  }
  return reduce_add(sum);
}

}  // namespace hk::cpu::HK_ISA
