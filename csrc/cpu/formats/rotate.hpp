// Rotates activations with the same bits as `rotated_float32` of
// hk_backend/reference/butterflies.py: sums and differences of channels h = 1, 2, 4, ... apart,
// then one factor.
//
// A run of kRun channels stays in registers for its stages. Longer blocks need one or two more
// stages, of whole registers kRun apart, which go over the block again in the first-level cache.
#pragma once

#include "formats/quantize.hpp"

namespace hk::cpu::HK_ISA {

template <int... lane>
struct Lanes {
  // One stage with pairs h apart within a register. The product is exact, so it may be fused.
  template <int h>
  static HK_INLINE vec pairs(vec x) {
    const vec signs{(lane & h ? -1.0f : 1.0f)...};
    return permuted<(lane ^ h)...>(x) + x * signs;
  }
  template <int h = 1>
  static HK_INLINE vec stages(vec x) {
    if constexpr (h == sizeof...(lane))
      return x;
    else
      return stages<2 * h>(pairs<h>(x));
  }
};
#if defined(__AVX512F__)
using Register = Lanes<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;
#elif defined(__AVX2__)
using Register = Lanes<0, 1, 2, 3, 4, 5, 6, 7>;
#else
using Register = Lanes<0, 1, 2, 3>;
#endif

// Stages with pairs of whole registers.
template <int count>
HK_INLINE void stages_between(vec (&x)[count]) {
#pragma GCC unroll 8
  for (int h = 1; h < count; h *= 2)
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i)
      if (!(i & h)) {
        const vec a = x[i], b = x[i + h];
        x[i] = a + b;
        x[i + h] = a - b;
      }
}

template <int block>
HK_INLINE void rotate_block(float* x) {
  constexpr int registers = kRun / VL, runs = block / kRun;
  const vec factor = splat(float(1.0 / __builtin_sqrt(block)));
  for (int r = 0; r < runs; ++r) {
    vec run[registers];
    for (int i = 0; i < registers; ++i) run[i] = Register::stages(load(x + r * kRun + i * VL));
    stages_between(run);
    for (int i = 0; i < registers; ++i)
      store(x + r * kRun + i * VL, runs == 1 ? run[i] * factor : run[i]);
  }
  if constexpr (runs > 1)
    for (int i = 0; i < registers; ++i) {
      vec column[runs];
      for (int r = 0; r < runs; ++r) column[r] = load(x + r * kRun + i * VL);
      stages_between(column);
      for (int r = 0; r < runs; ++r) store(x + r * kRun + i * VL, column[r] * factor);
    }
}

// Rotates `count` channels in place; they are whole blocks of 32, 64 or 128.
HK_INLINE void rotate(float* x, int64_t count, int64_t block) {
  for (int64_t i = 0; i < count; i += block) {
    if (block == 32) rotate_block<32>(x + i);
    if (block == 64) rotate_block<64>(x + i);
    if (block == 128) rotate_block<128>(x + i);
  }
}

}  // namespace hk::cpu::HK_ISA
