// Scores before their row's maximum is taken: as they are, capped, or biased by their key's
// distance. Times `factor` the softmax takes a score as an exponent of 2, up to `least`, a constant
// of all rows.
#pragma once

#include "row_maximum.hpp"
#include "scale.hpp"

namespace hk::attention {

// The score itself.
struct Scores {
  static constexpr bool kBends = false, kSloped = false;
  f32 factor;

  HK_DEVICE static Scores of(const AttentionPrefillArgs&, f32, f32 factor) { return {factor}; }
  HK_DEVICE static f32 least() { return 0; }
};

// cap * tanh(score / cap) = 2 * cap * y - cap, with y = 1 / (1 + 2^x): of any score 0 to 1, NaN of
// NaN. Softmax sees differences of y alone; the constant is the log-sum-exp's. v_exp_f32 and
// v_rcp_f32, each off by an ulp, and the sum's rounding move y by 2^-23 at most: a logit by 2^-22
// of the cap.
struct CappedScores {
  static constexpr bool kBends = true, kSloped = false;
  f32 factor, steepness, cap;

  HK_DEVICE static CappedScores of(const AttentionPrefillArgs& args, f32, f32 factor) {
    // Past float32 any score is at the cap, but for 0, which stays 0.
    const f32 steepness = __builtin_elementwise_minnum(factor * (2 / args.soft_cap), kLargest);
    return {to_scalar(2 * kLog2E * args.soft_cap), to_scalar(-steepness), args.soft_cap};
  }
  HK_DEVICE f32 least() const { return cap; }

  HK_DEVICE Pair operator()(Pair score, Pair) const {
    const Pair x = score * Pair(steepness);
    const Pair sum = Pair{__builtin_amdgcn_exp2f(x[0]), __builtin_amdgcn_exp2f(x[1])} + Pair(1.0f);
    return {__builtin_amdgcn_rcpf(sum[0]), __builtin_amdgcn_rcpf(sum[1])};
  }
};

// score + slope * (key - query), both positions, in units of the score: so that far scores keep
// their bits.
struct BiasedScores {
  static constexpr bool kBends = true, kSloped = true;
  f32 factor, slope;

  HK_DEVICE static BiasedScores of(const AttentionPrefillArgs&, f32 slope, f32 factor) {
    return {factor, to_scalar(slope * kLog2E / factor)};
  }
  HK_DEVICE static f32 least() { return 0; }

  HK_DEVICE Pair operator()(Pair score, Pair ahead) const {
    return {__builtin_elementwise_fma(ahead[0], slope, score[0]),
            __builtin_elementwise_fma(ahead[1], slope, score[1])};
  }
};

}  // namespace hk::attention
