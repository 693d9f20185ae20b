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

// Replaces each score x by cap * tanh(x / cap) in units of log2, for the base-2 exponential.
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

// Writes the largest score of each row to `tops`, VL floats. NaN does not count: the exponential
// brings it back. Rows are reduced side by side, so that none waits for another's reduction.
template <int rows, int stride>
HK_INLINE void row_maxima(const float* scores, int64_t begin, int64_t end, float* tops) {
  vec top[rows];
  for (auto& t : top) t = splat(kNegInf);
  for (int64_t k = begin; k < end; k += VL)
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) top[r] = max_or_second(load(scores + r * stride + k), top[r]);
  store(tops, reduce_each(top, [](auto a, auto b) { return a > b ? a : b; }));
}

HK_INLINE vec weights_of(float*, vec x) { return exp2(x); }
HK_INLINE void store_weights(float* to, vec p) { store(to, p); }
HK_INLINE void store_two(float* to, vec p, vec next) {
  store(to, p);
  store(to + VL, next);
}
#if defined(__AVX512BF16__)
// 2^x for weights that are then rounded to bfloat16, with a relative error of 2^-18, since the
// log-sum-exp sums unrounded weights. Minimax polynomial of 2^r on [0, 1), r = x - floor(x), exact
// at r = 0.
HK_INLINE vec weights_of(uint16_t*, vec x) {
  const vec r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);
  vec p = splat(0.013426686615862549f);
  p = p * r + splat(0.05224247045874944f);
  p = p * r + splat(0.2412802065120319f);
  p = p * r + splat(0.6930448446807697f);
  p = p * r + splat(1.0f);
  return _mm512_scalef_ps(p, x);  // the instruction takes floor(x) itself
}
HK_INLINE void store_weights(uint16_t* to, vec p) { store_run<BF16>(to, p); }
HK_INLINE void store_two(uint16_t* to, vec p, vec next) {
  const __m512bh rounded = _mm512_cvtne2ps_pbh(next, p);
  std::memcpy(to, &rounded, sizeof(rounded));
}
#endif

// weights = 2^(scores * factor - tops), rounded to their type. Adds the unrounded weights to
// sums * rescale, lane by lane. Takes two registers at a time, which become one of bfloat16.
template <int rows, int stride, class weight>
HK_INLINE void row_weights(const float* scores, weight* weights, int64_t begin, int64_t end,
                           float factor, const float* tops, const float* rescale, float* sums) {
  vec sum[rows];
  for (int r = 0; r < rows; ++r) sum[r] = load(sums + r * VL) * splat(rescale[r]);
  const auto weight_at = [&](int r, int64_t k) {
    const vec score = load(scores + r * stride + k);
    const vec p = weights_of(weights, score * splat(factor) - splat(tops[r]));
    sum[r] += p;
    return p;
  };
  int64_t k = begin;
  for (; k + 2 * VL <= end; k += 2 * VL)
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const vec p = weight_at(r, k), next = weight_at(r, k + VL);
      store_two(weights + r * stride + k, p, next);
    }
  for (; k < end; k += VL)
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) store_weights(weights + r * stride + k, weight_at(r, k));
  for (int r = 0; r < rows; ++r) store(sums + r * VL, sum[r]);
}

}  // namespace hk::cpu::HK_ISA
