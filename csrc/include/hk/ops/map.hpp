// The same function on every element of a result block or on pairs of them.
#pragma once

#include "../types/register_tile.hpp"

namespace hk {

using Block = Vec<f32, Mma::kResult>;
using Pair = Vec<f32, 2>;  // two elements of one lane: what a packed f32 instruction computes

HK_DEVICE Pair pair(const Block& block, int index) { return {block[2 * index], block[2 * index + 1]}; }

// dst = f(src), pair by pair.
template <class F>
HK_DEVICE void map(Block& dst, const Block& src, F&& f) {
  static_for<0, Mma::kResult / 2>([&](auto i) {
    const Pair mapped = f(pair(src, i));
    dst[2 * i.value] = mapped[0];
    dst[2 * i.value + 1] = mapped[1];
  });
}

// dst = src * factor, per column.
HK_DEVICE void scale(Block& dst, const Block& src, ColumnVector factor) {
  map(dst, src, [&](Pair x) { return x * Pair{factor, factor}; });
}

// dst = value in every element.
HK_DEVICE void fill(Block& dst, f32 value) { dst = Block(value); }

}  // namespace hk
