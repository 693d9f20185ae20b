// The end of a linear layer's panel: sums times factors, plus bias, rounded once.
#pragma once

#include "linear/linear_args.hpp"
#include "common/micro_gemm.hpp"

namespace hk::cpu::HK_ISA {

// Factors and bias of a panel's columns; past N they are never stored.
HK_INLINE void load_columns(const LinearArgs& args, int64_t column, int64_t count, float* factors,
                            float* bias) {
  for (int64_t i = 0; i < NR; ++i) factors[i] = 1.0f, bias[i] = 0.0f;
  if (args.factors) std::memcpy(factors, args.factors + column, sizeof(float) * count);
  if (args.bias)
    with_format(args.bias_dtype, [&](auto format) {
      using T = decltype(format);
      const auto* from = static_cast<const typename T::type*>(args.bias) + column;
      for (int64_t i = 0; i < count; ++i) bias[i] = widen(T{}, from[i]);
    });
}

// out[row + r, column + i] = sums[r][i] * row_factors[r] * factors[column + i] + bias[column + i]
inline void store_panel(const LinearArgs& args, int64_t row, int64_t num_rows,
                        const float* row_factors, int64_t column, const float* sums) {
  alignas(64) float factors[NR], bias[NR], scaled[NR];
  const int64_t count = args.n - column < NR ? args.n - column : NR;
  load_columns(args, column, count, factors, bias);
  with_format(args.out_dtype, [&](auto format) {
    using T = decltype(format);
    using element = typename T::type;
    auto* out = static_cast<element*>(args.out) + row * args.out_row + column;
    for (int64_t r = 0; r < num_rows; ++r, out += args.out_row, sums += NR) {
      for (int v = 0; v < NR; v += VL)
        store(scaled + v,
              load(sums + v) * splat(row_factors[r]) * load(factors + v) + load(bias + v));
      element rounded[NR];
      for (int i = 0; i < NR; i += 8) store8<T>(rounded + i, *reinterpret_cast<f8_u*>(scaled + i));
      if (count == NR)
        std::memcpy(out, rounded, sizeof(rounded));
      else
        std::memcpy(out, rounded, sizeof(element) * count);
    }
  });
}

}  // namespace hk::cpu::HK_ISA
