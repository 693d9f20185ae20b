// Masks: the keys that a query row sees, and the sink or slope of its head. Kernels without a
// window have no code of either.
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

// One part of all keys: each part has workgroups of its own, and attention_merge.hip joins their
// results.
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

// Decode: a workgroup has a part of the keys that the windows of a request's rows hold. Rows are of
// all heads of a group. Their sinks are added to whole results alone, whose mask is `Whole`.
template <class Logits_, bool Part = true>
struct Dealt {
  using Logits = Logits_;
  using Whole = Dealt<Logits_, false>;
  static constexpr char kName[16] = "window";
  static constexpr bool kWindow = true, kPart = Part, kGrouped = true;
};
struct DecodeWindow : Dealt<Scores> {};
struct DecodeCapped : Dealt<CappedScores> {
  static constexpr char kName[16] = "capped";
};

// The keys that a step masks: none; those past a row's last one; these and the keys before its
// window.
enum class Masked { kNot, kPast, kOutside };

// The keys that a row sees: `window` of them up to `end`.
struct KeySpan {
  i32 end, window;
};

// Rows and keys are counted from a request's first ones; `ahead` keys come before its first row.
template <class Mask>
struct Visible {
  i32 keys, ahead, causal, window;
  i32 part_begin, part_end;

  // Limits all rows to part `part` of the keys. Parts are whole tiles. The first one begins with
  // the tile where the window of `first_row` begins.
  HK_DEVICE void limit(const AttentionPrefillArgs& args, u32 part, u32 first_row, i32 tile_keys) {
    if constexpr (Mask::kPart) {
      const i32 begin = window_begin(first_row) / tile_keys * tile_keys;
      part_begin = begin + part * args.part_keys;
      if (i32(part) != args.parts - 1) part_end = part_begin + args.part_keys;
    }
  }

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
  // `all`: the window, read anew from the arguments where that keeps a register free.
  HK_DEVICE KeySpan span(i32 row, i32 all) const {
    const i32 last = end(row);
    if constexpr (!Mask::kWindow || !Mask::kPart) return {last, all};
    const i32 seen = last - first(row);  // a part may have some of the window, or nothing
    return {seen > 0 ? last : 0, max(seen, 1)};
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
