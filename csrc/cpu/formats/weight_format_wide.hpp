// Weights of 16 and 32 bits, and definitions that the layouts of all formats share.
#pragma once

#include "linear/linear_args.hpp"
#include "common/micro_gemm.hpp"
#include "formats/small_float.hpp"

namespace hk::cpu::HK_ISA {

constexpr int64_t kGroupK = 8;
constexpr int64_t kPrefetchAhead = 4096;  // bytes ahead, while a weight is streamed

// Marks lambdas passed as f(k, w): they have a few instructions, and a call would spill registers.
#define HK_INLINED __attribute__((always_inline))

// Sizes of a format with elements of `element_bits`; `is_mx`: with a scale per column and slab.
template <class Code, class Small, int element_bits, bool is_mx>
struct WeightLayout {
  using code = Code;
  using small = Small;
  static constexpr bool mx = is_mx;
  static constexpr int64_t scale_bytes = mx ? NR : 0;
  static constexpr int64_t group_bytes = kGroupK * NR * element_bits / 8;
  static constexpr int64_t slab_bytes = scale_bytes + kSlabK / kGroupK * group_bytes;
  static constexpr bool has_integers = false;
};

// Whether elements are codes with a scale.
template <class W>
constexpr bool is_quantised = sizeof(typename W::code) == 1;

// Order [k][column], in which RegisterTile::multiply reads a panel.
struct F32Weight : WeightLayout<uint32_t, void, 32, false> {
  static constexpr float factor = 1.0f;

  static void pack_group(const code* codes, uint8_t* out) {
    for (int64_t k = 0; k < kGroupK; ++k)
      for (int64_t n = 0; n < NR; ++n)
        std::memcpy(out + 4 * (k * NR + n), codes + n * kSlabK + k, 4);
  }
  template <class F>
  static HK_INLINE void expand_group(const uint8_t* codes, F f) {
    const auto* from = reinterpret_cast<const float*>(codes);
#pragma GCC unroll 8
    for (int k = 0; k < kGroupK; ++k) {
      vec w[NV];
      for (int v = 0; v < NV; ++v) w[v] = load(from + k * NR + v * VL);
      f(k, w);
    }
  }
};

// Order [k / 2][column][k % 2]: a 32-bit lane holds two neighbours along K, for vdpbf16ps.
struct BF16Weight : WeightLayout<uint16_t, void, 16, false> {
  static constexpr float factor = 1.0f;

  static void pack_group(const code* codes, uint8_t* out) {
    for (int64_t k = 0; k < kGroupK; ++k)
      for (int64_t n = 0; n < NR; ++n)
        std::memcpy(out + 2 * (k / 2 * 2 * NR + 2 * n + k % 2), codes + n * kSlabK + k, 2);
  }
  template <class F>
  static HK_INLINE void expand_group(const uint8_t* codes, F f) {
#pragma GCC unroll 4
    for (int k = 0; k < kGroupK; k += 2, codes += 4 * NR) {
      vec even[NV], odd[NV];
      for (int v = 0; v < NV; ++v) {
        ivec pair;
        std::memcpy(&pair, codes + 4 * v * VL, sizeof(pair));
        even[v] = widen_lower(pair);
        odd[v] = widen_upper(pair);
      }
      f(k, even);
      f(k + 1, odd);
    }
  }
};

// Order [k][column].
struct F16Weight : WeightLayout<uint16_t, void, 16, false> {
  static constexpr float factor = 1.0f;

  static void pack_group(const code* codes, uint8_t* out) {
    for (int64_t k = 0; k < kGroupK; ++k)
      for (int64_t n = 0; n < NR; ++n)
        std::memcpy(out + 2 * (k * NR + n), codes + n * kSlabK + k, 2);
  }
  static HK_INLINE vec widen_run(const uint16_t* from) {
#if defined(__AVX512F__)
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
    vec x;
    for (int i = 0; i < VL; ++i) x[i] = widen(F16{}, from[i]);
    return x;
#endif
  }
  template <class F>
  static HK_INLINE void expand_group(const uint8_t* codes, F f) {
    const auto* from = reinterpret_cast<const uint16_t*>(codes);
#pragma GCC unroll 8
    for (int k = 0; k < kGroupK; ++k) {
      vec w[NV];
      for (int v = 0; v < NV; ++v) w[v] = widen_run(from + k * NR + v * VL);
      f(k, w);
    }
  }
};

}  // namespace hk::cpu::HK_ISA
