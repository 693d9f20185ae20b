// The end of a row, once all of its keys have been seen: the factor of the weighted values, and the
// log-sum-exp.
#pragma once

#include "row_maximum.hpp"
#include "scale.hpp"

namespace hk::attention {

constexpr f32 kLn2 = 0.69314718055994531f;

// `total`: the sum of the weights, which are taken from `base`, a natural logarithm. Sums of
// weighted values are to be multiplied with `inverse`.
struct RowWeights {
  ColumnVector inverse, total, base;

  // Rows without a key have none. `value_factor`: of the output; `least`: what logits lack.
  HK_DEVICE static RowWeights of(RowSums sums, f32 factor, f32 value_factor, f32 least = 0) {
    return {sums.total == 0 ? 0 : value_factor * __builtin_amdgcn_rcpf(sums.total), sums.total,
            sums.maximum * (factor * kLn2) - least};
  }

  // The same beside a score that takes weight and has no value.
  HK_DEVICE RowWeights with_sink(f32 sink, f32 value_factor) const {
    const ColumnVector largest = total == 0 ? kNoScore : base;
    const ColumnVector both = __builtin_elementwise_maximum(largest, sink);
    const auto share = [&](ColumnVector x) {
      return x == kNoScore ? 0 : x == both ? 1 : __builtin_amdgcn_exp2f((x - both) * kLog2E);
    };
    const ColumnVector kept = share(largest), sum = total * kept + share(sink);
    return {value_factor * kept * __builtin_amdgcn_rcpf(sum), sum, both};
  }

  HK_DEVICE ColumnVector log_sum_exp() const {
    return total == 0 ? kNoScore : base + __builtin_amdgcn_logf(total) * kLn2;
  }
};

}  // namespace hk::attention
