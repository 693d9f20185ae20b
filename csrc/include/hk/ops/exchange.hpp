// Results from one wave to another, through LDS: what a lane puts, the same lane of another gets.
#pragma once

#include "../types/register_tile.hpp"

namespace hk {

template <class T>
using Shared = T __attribute__((address_space(3)))*;

// LDS bytes of a block and of a column vector.
inline constexpr int kBlockBytes = sizeof(Block) * arch::kLanes;
inline constexpr int kColumnBytes = sizeof(ColumnVector) * arch::kLanes;

HK_DEVICE void put(u32 dst, const Block& src, Lane lane) {
  static_for<0, 4>([&](auto i) {
    ((Shared<Vec<f32, 4>>)dst)[arch::kLanes * i + lane.id] = {
        src[4 * i.value], src[4 * i.value + 1], src[4 * i.value + 2], src[4 * i.value + 3]};
  });
}
HK_DEVICE void get(Block& dst, u32 src, Lane lane) {
  static_for<0, 4>([&](auto i) {
    const Vec<f32, 4> four = ((Shared<Vec<f32, 4>>)src)[arch::kLanes * i + lane.id];
    static_for<0, 4>([&](auto k) { dst[4 * i.value + k.value] = four[k.value]; });
  });
}

HK_DEVICE void put(u32 dst, ColumnVector src, Lane lane) {
  ((Shared<ColumnVector>)dst)[lane.id] = src;
}
HK_DEVICE void get(ColumnVector& dst, u32 src, Lane lane) {
  dst = ((Shared<ColumnVector>)src)[lane.id];
}

}  // namespace hk
