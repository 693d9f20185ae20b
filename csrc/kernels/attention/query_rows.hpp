// A wave's query rows on their way to its registers: through the LDS, because copies of whole rows
// ask memory for half as many pieces as loads of operand fragments do.
#pragma once

#include "scale.hpp"
#include "shape.hpp"

namespace hk::attention {

template <class Shape>
class QueryRows {
  using T = typename Shape::Element;
  using Tile = SharedTile<T, Shape::kWaveRows, Shape::kHeadSize, typename Shape::Tile::Layout>;
  using Share = TileCopy<Tile, Shape::kKeyParts>;

 public:
  // Waves with the same rows copy them together: they may load after a barrier.
  static constexpr bool kShared = Shape::kKeyParts > 1;
  static constexpr int kLdsBytes = Shape::kQueryRows / Shape::kWaveRows * Tile::kBytes;
  using Operand = OperandTile<T, Shape::kWaveRows, Shape::kHeadSize>;

  // `lds`: for all waves.
  HK_DEVICE QueryRows(u32 lds, i32 wave_, Lane of)
      : wave(wave_), lane(of), tile{lds + Shape::row(wave_) / Shape::kWaveRows * Tile::kBytes} {}

  // `rows` rows of `channels` from `first` on.
  HK_DEVICE void copy(u64 first, i32 rows, u32 row_bytes, i32 channels) const {
    Share share(Shape::part(wave), lane, row_bytes);
    if constexpr (Shape::kPadded)
      share.end_rows(channels * sizeof(T), kNowhere, Shape::part(wave), lane);
    const u32 count = clamp_scalar(rows - share.first_row, Share::kRowsSpanned);
    hk::copy(tile, RowSpan{first + share.first_row * row_bytes, count * row_bytes}, share);
    fence_schedule();
  }
  HK_DEVICE void load(Operand& query) const {
    const auto reader = RowReader<Tile>::of(lane).at(tile);
    static_for<0, Step<Shape>::kChannelSteps>(
        [&](auto step) { hk::load<0, step.value>(query.part[0][step], reader); });
  }

 private:
  i32 wave;
  Lane lane;
  Tile tile;
};

}  // namespace hk::attention
