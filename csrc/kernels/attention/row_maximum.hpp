// The maximum that the exponentials of a row are taken from: 2^(factor * (score - maximum)).
#pragma once

#include "shape.hpp"

namespace hk::attention {

constexpr f32 kNoScore =
    -__builtin_inff();  // of what is masked, and of a row that has seen nothing
constexpr f32 kLargest = 3.40282347e38f;
constexpr f32 kHeadroom = 8.0f;  // a maximum may be stale by 2^8 before O is rescaled
// Below this, factor * score - factor * maximum is one multiply-add: its second product is rounded
// by at most 1/2, alike for all of a row's scores. Beyond, the rounding would outgrow any weight.
constexpr f32 kFar = 0x1p24f;

// The state of a row: its largest score so far, and the sum of the weights taken from that.
struct RowSums {
  ColumnVector maximum, total;

  // Adds what the row has seen elsewhere. `here` and `there` become the factors for sums with the
  // weights of here and of there.
  HK_DEVICE void join(RowSums other, f32 factor, ColumnVector& here, ColumnVector& there) {
    const ColumnVector both = __builtin_elementwise_maximum(maximum, other.maximum);
    const ColumnVector base = both == kNoScore ? 0 : both;
    here = __builtin_amdgcn_exp2f((maximum - base) * factor);
    there = __builtin_amdgcn_exp2f((other.maximum - base) * factor);
    total = total * here + other.total * there;
    maximum = both;
  }
};

struct RowMaximum {
  ColumnVector value = kNoScore;
  ColumnVector limit = kNoScore;  // a score above it calls for `rise`
  ColumnVector base = 0;          // `value`, or 0 where there is none
  ColumnVector offset = 0;        // to be subtracted from factor * score
  bool is_far = false;            // in any row of the wave: then `rise` and `rebase` in every step

  // Takes in a step's largest score. Returns the factor for the weights so far.
  HK_DEVICE ColumnVector rise(ColumnVector next, f32 factor) {
    const ColumnVector before = value;
    value = __builtin_elementwise_maximum(value, next);
    base = value == kNoScore ? 0 : value;
    offset = base * factor;
    limit =
        value + __builtin_elementwise_minnum(kHeadroom * __builtin_amdgcn_rcpf(factor), kLargest);
    is_far = any(__builtin_fabsf(value) <= kLargest && __builtin_fabsf(offset) >= kFar);
    if (is_far) limit = kNoScore, offset = 0;
    return __builtin_amdgcn_exp2f((before - base) * factor);
  }

  // Subtracts a maximum that is far from zero, before a product has rounded anything.
  HK_DEVICE void rebase(Block& scores) const {
    map(scores, scores, [&](Pair score) { return score - Pair(base); });
  }
};

}  // namespace hk::attention
