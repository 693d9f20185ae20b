// How the scale of the scores is applied: its sign to the query, its size in the exponential.
#pragma once

#include "shape.hpp"

namespace hk::attention {

constexpr f32 kLog2E = 1.44269504088896341f;

// Scores are computed with a query whose sign is that of the scale, and multiplied by `factor` on
// their way into the exponential: the largest score is then the largest exponent.
struct Scale {
  f32 scale, factor;

  HK_DEVICE explicit Scale(f32 given)
      : scale(given), factor(given == 0 ? 1.0f : __builtin_fabsf(given) * kLog2E) {}

  template <class Query>
  HK_DEVICE void apply(Query& query) const {
    if (__builtin_expect(bit_cast<i32>(scale) > 0, true)) return;
    const u32 flip = scale < 0 ? 0x80008000u : 0, keep = scale == 0 ? 0 : ~0u;
    for (auto& part : query.part[0]) part.words = (part.words ^ flip) & keep;
  }
};

}  // namespace hk::attention
