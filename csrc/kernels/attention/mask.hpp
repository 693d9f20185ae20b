// Which keys a query row sees, and what a head has beside them. Kernels without a window have no code
// of either.
#pragma once

#include "logits.hpp"

namespace hk::attention {

// All keys up to a row's end.
struct All {
  using Logits = Scores;
  static constexpr char kName[16] = "none";
  static constexpr bool kWindow = false, kPart = false, kGrouped = true;
};

// The last `window` of those, and a sink: a score of its own that takes weight and has no value.
struct Window {
  using Logits = Scores;
  static constexpr char kName[16] = "window";
  static constexpr bool kWindow = true, kPart = false, kGrouped = false;
};

// The same of capped scores.
struct Capped : Window {
  using Logits = CappedScores;
  static constexpr char kName[16] = "capped";
};

// The same of scores with a bias for each head (ALiBi).
struct Biased : Window {
  using Logits = BiasedScores;
  static constexpr char kName[16] = "alibi";
};

// Of all keys those of one part: a workgroup for each, and attention_merge.hip joins what they found.
struct Part {
  using Logits = Scores;
  static constexpr char kName[16] = "part";
  static constexpr bool kWindow = false, kPart = true, kGrouped = true;
};

// The same of the keys that the windows of a query tile hold.
struct WindowPart : Window {
  static constexpr char kName[16] = "window_part";
  static constexpr bool kPart = true;
};

// What a step has to mask: nothing; keys past a row's last one; these and keys before its window.
enum class Masked { kNot, kPast, kOutside };

// Rows and keys are counted from a request's first ones; `ahead` keys come before its first row.
template <class Mask>
struct Visible {
  i32 keys, ahead, causal, window;
  i32 part_begin, part_end;

  // The first key that a row sees of all parts.
  HK_DEVICE i32 window_begin(i32 row) const {
    return Mask::kWindow ? max(ahead + row + 1 - window, 0) : 0;
  }
  HK_DEVICE i32 first(i32 row) const {
    if constexpr (!Mask::kPart) return window_begin(row);
    return Mask::kWindow ? max(window_begin(row), part_begin) : part_begin;
  }
  HK_DEVICE i32 end(i32 row) const {
    const i32 found = causal ? min(keys, max(ahead + row + 1, 0)) : keys;
    return Mask::kPart ? min(found, part_end) : found;
  }
};

// Whether a head may have a sink. Those of parts are the merge's.
template <class Mask>
constexpr bool kHasSinks = Mask::kWindow && !Mask::kPart;

// The head's sink; kNoScore: none.
template <class Mask>
HK_DEVICE f32 sink_of(const AttentionPrefillArgs& args, u32 head) {
  if constexpr (!kHasSinks<Mask>) return kNoScore;
  return args.sinks ? constant(args.sinks)[head] : kNoScore;
}

// The head's slope of biases; 0: none.
template <class Mask>
HK_DEVICE f32 slope_of(const AttentionPrefillArgs& args, u32 head) {
  if constexpr (!Mask::Logits::kSloped) return 0;
  return args.alibi_slopes ? constant(args.alibi_slopes)[head] : 0.0f;
}

}  // namespace hk::attention
