// The tiles of keys that a workgroup goes through.
#pragma once

#include "mask.hpp"

namespace hk::attention {

// The tiles from `first` on. `first_seen` is the first key that any row of the workgroup sees.
struct KeyTiles {
  i32 first_seen, first, end;
  i32 fewest;  // the least `end` of the workgroup and of a wave, or 0

  // `rows`: all rows of the workgroup.
  template <class Shape, class Source, class Mask, class Rows>
  HK_DEVICE static KeyTiles of(const Visible<Mask>& visible, const Rows& rows) {
    constexpr int kTileKeys = Shape::kTileKeys;
    const i32 first_seen = visible.first(rows.token), first = first_seen / kTileKeys;
    // The last step clears no values before a window, so a first tile with such values has another
    // tile after it.
    const bool clears = Mask::kWindow && !Source::kWidens && first_seen % kTileKeys != 0;
    const i32 fewest = clears ? first + 2 : 0;
    const i32 last_seen = visible.end(rows.token + rows.token_of(rows.count - 1));
    return {first_seen, first, max(ceil_div(last_seen, kTileKeys), fewest), fewest};
  }
};

}  // namespace hk::attention
