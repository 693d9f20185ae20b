// A wave's query rows on their way to its registers: through the LDS, because copies of whole rows
// ask memory for half as many pieces as loads of operand fragments do.
#pragma once

#include "scale.hpp"
#include "wave_rows.hpp"

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

  // `first`: where the wave's first token has the group's first head; `channels`: of a row. Past
  // the last row that one is copied again: what lies beyond is another request's.
  template <bool Grouped>
  HK_DEVICE void copy(u64 first, const WaveRows<Grouped>& rows, u32 token_bytes, u32 head_bytes,
                      i32 channels) const {
    Share share(Shape::part(wave), lane, {0});
    constexpr int kNeighbours = min(Share::kCopies, Share::kPer16);  // a row of each instruction
    static_for<0, Share::kCopies / kNeighbours>([&](auto k) {
      constexpr int kFirst = k.value * kNeighbours;
      const i32 row = share.first_row + Share::row(kFirst, Shape::part(wave), lane);
      RowWalk<Grouped> at(rows, row, token_bytes, head_bytes);
      share.source[kFirst] += at.byte;
      static_for<1, kNeighbours>([&](auto i) {
        at.next(row + i.value);
        share.source[kFirst + i.value] += at.byte;
      });
    });
    if constexpr (Shape::kPadded)
      share.end_rows(channels * sizeof(T), kNowhere, Shape::part(wave), lane);
    hk::copy(tile, BoundedView(first, clamp_scalar(rows.count, 1) * kNowhere), share);
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
