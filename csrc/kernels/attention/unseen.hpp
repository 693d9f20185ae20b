// Clears what a fragment holds of channels and rows that must not count. Zero times NaN would be
// NaN.
#pragma once

#include "mask.hpp"

namespace hk::attention {

// Clears the channels of a key past the end of its row. A padded row that each lane finds has no
// view to be past of: the lane has copied something else there.
template <class Shape, class Source, class Mask, int Step, class Keys>
HK_DEVICE void clear_channels(Keys& keys, i32 channels, Lane lane) {
  using Matrix = Mma<typename Shape::Element>;
  if constexpr (Shape::kPadded && Source::kByLane) {
    i32 rest = channels - Step * Matrix::kDepth - Matrix::depth(0, lane.half);
    // A window has no scalar registers for the masks of all 16 steps.
    if constexpr (Mask::kWindow && Step >= 15) pin_vector(rest);
    if (rest <= 0) keys.words = 0;
  }
}

// The keys of a tile that any row sees, counted from the first that is the wave's.
struct ValuesSeen {
  i32 first, end;
};

// Clears values that no row sees. Values past the last key are in the last tile alone, or in a
// first one before it that is cleared, too. Codes that no row sees never get to LDS (the streams'
// `seen`).
template <class Shape, class Source, bool kLastTile, Masked kMasked, int KeyStep, class Values>
HK_DEVICE void clear_values(Values& values, ValuesSeen seen, Lane lane) {
  using Lay = Tiles<Shape, Source>;
  constexpr bool kClears = kMasked == Masked::kOutside && !Source::kWidens;
  const auto key_of = [](int element) { return Lay::key(element, 0); };
  const auto rest = [&](i32 keys) {  // from this lane's first key of the fragment on
    i32 own = keys - KeyStep * Mma<typename Shape::Element>::kDepth - Lay::key(0, lane.half);
    // Masks that fragments share would take registers that are not there.
    if constexpr (kClears && Shape::kWavesPerSimd > 2) pin_vector(own);
    return own;
  };
  if constexpr (kClears) keep_from(values, values, rest(seen.first), key_of);
  if constexpr (!Source::kBounded && (kLastTile || kClears))
    keep_below(values, values, rest(seen.end), key_of);
}

}  // namespace hk::attention
