// The same function on every element of a result block or on pairs of them.
#pragma once

#include "../types/register_tile.hpp"

namespace hk {

using Pair = Vec<f32, 2>;  // two elements of one lane: what a packed f32 instruction computes

template <int N>
HK_DEVICE Pair pair(const Vec<f32, N>& block, int index) {
  return {block[2 * index], block[2 * index + 1]};
}

// dst = f(src), pair by pair.
template <int N, class F>
HK_DEVICE void map(Vec<f32, N>& dst, const Vec<f32, N>& src, F&& f) {
  static_for<0, N / 2>([&](auto i) {
    const Pair mapped = f(pair(src, i));
    dst[2 * i.value] = mapped[0];
    dst[2 * i.value + 1] = mapped[1];
  });
}

// dst = src * factor, per column.
template <int N>
HK_DEVICE void scale(Vec<f32, N>& dst, const Vec<f32, N>& src, ColumnVector factor) {
  map(dst, src, [&](Pair x) { return x * Pair{factor, factor}; });
}

// dst = value in every element.
template <int N>
HK_DEVICE void fill(Vec<f32, N>& dst, f32 value) {
  dst = Vec<f32, N>(value);
}

}  // namespace hk
