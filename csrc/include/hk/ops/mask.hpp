// What lies past the end of the depth is set to zero: NaN times zero would be NaN.
#pragma once

#include "../types/register_tile.hpp"

namespace hk {

// dst = src where the lane's depth is below `depth`, 0 elsewhere. `src` was read along its rows.
template <class T, class Shape>
HK_DEVICE void keep_below(Fragment<T, Shape>& dst, const Fragment<T, Shape>& src, i32 depth,
                          Lane lane) {
  static_assert(sizeof(T) == 2);
  const i32 kept = depth - Shape::depth(0, lane.group<Shape>());
  static_for<0, Fragment<T, Shape>::kWords>([&](auto word) {
    const u32 mask = kept >= 2 * word + 2 ? ~0u : kept == 2 * word + 1 ? 0xffffu : 0u;
    dst.words[word.value] = src.words[word.value] & mask;
  });
}

}  // namespace hk
