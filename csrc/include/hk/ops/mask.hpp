// Sets to zero what lies outside of the depth that counts: NaN times zero would be NaN.
#pragma once

#include "../types/register_tile.hpp"

namespace hk {

// dst = src where the depth is below `depth`, 0 elsewhere. `depth_of(element)` is that of the
// lane's elements; two of a word are neighbours.
template <class T, class Shape, class DepthOf>
HK_DEVICE void keep_below(Fragment<T, Shape>& dst, const Fragment<T, Shape>& src, i32 depth,
                          DepthOf&& depth_of) {
  static_assert(sizeof(T) == 2);
  static_for<0, Fragment<T, Shape>::kWords>([&](auto word) {
    const i32 kept = depth - depth_of(2 * word);
    const u32 mask = kept >= 2 ? ~0u : kept == 1 ? 0xffffu : 0u;
    dst.words[word.value] = src.words[word.value] & mask;
  });
}

// dst = src where the depth is at least `depth`, 0 elsewhere.
template <class T, class Shape, class DepthOf>
HK_DEVICE void keep_from(Fragment<T, Shape>& dst, const Fragment<T, Shape>& src, i32 depth,
                         DepthOf&& depth_of) {
  static_assert(sizeof(T) == 2);
  static_for<0, Fragment<T, Shape>::kWords>([&](auto word) {
    const i32 dropped = depth - depth_of(2 * word);
    u32 kept = src.words[word.value];
    if (dropped == 1) kept &= 0xffff0000u;
    dst.words[word.value] = dropped >= 2 ? 0u : kept;
  });
}

// keep_below of what was read along its rows.
template <class T, class Shape>
HK_DEVICE void keep_below(Fragment<T, Shape>& dst, const Fragment<T, Shape>& src, i32 depth,
                          Lane lane) {
  const i32 first = Shape::depth(0, lane.group<Shape>());
  keep_below(dst, src, depth - first, [](int element) { return Shape::depth(element, 0); });
}

}  // namespace hk
