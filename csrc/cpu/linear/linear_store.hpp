// Stores a tile of a linear layer: sums times factors, plus bias, rounded once.
#pragma once

#include "common/micro_gemm.hpp"
#include "linear/linear_args.hpp"

namespace hk::cpu::HK_ISA {

// Factors and biases of a panel's columns; columns past N are never stored.
struct Columns {
  alignas(64) float factors[NR], bias[NR];
  int64_t first, count;

  HK_INLINE Columns(const LinearArgs& args, int64_t column)
      : first(column), count(args.n - column < NR ? args.n - column : NR) {
    for (int64_t i = 0; i < NR; ++i) factors[i] = 1.0f, bias[i] = 0.0f;
    if (args.factors) std::memcpy(factors, args.factors + column, sizeof(float) * count);
    if (args.bias)
      with_format(args.bias_dtype, [&](auto format) {
        using T = decltype(format);
        const auto* from = static_cast<const typename T::type*>(args.bias) + column;
        for (int64_t i = 0; i < count; ++i) bias[i] = widen(T{}, from[i]);
      });
  }
};

// out[row + r, column i] = sums[r][i] * row_factors[r] * factors[i] + bias[i]
inline void store_rows(const LinearArgs& args, const Columns& columns, int64_t row,
                       int64_t num_rows, const float* row_factors, const float* sums) {
  with_format(args.out_dtype, [&](auto format) {
    using T = decltype(format);
    using element = typename T::type;
    auto* out = static_cast<element*>(args.out) + row * args.out_row + columns.first;
    for (int64_t r = 0; r < num_rows; ++r, out += args.out_row, sums += NR) {
      // Whole rows go straight to memory: reading `part` back would wait for two stores.
      element part[NR];
      element* to = columns.count == NR ? out : part;
      for (int v = 0; v < NR; v += VL)
        store_run<T>(to + v, load(sums + v) * splat(row_factors[r]) * load(columns.factors + v) +
                                 load(columns.bias + v));
      if (to == part) std::memcpy(out, part, sizeof(element) * columns.count);
    }
  });
}

}  // namespace hk::cpu::HK_ISA
