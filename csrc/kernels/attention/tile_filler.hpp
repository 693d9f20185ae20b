// How a wave's share of a tile comes to LDS: copied as it is, or through registers, widened.
#pragma once

#include "hk/ops/widen.hpp"
#include "shape.hpp"

namespace hk::attention {

// Copies past the registers. They land by themselves, and are waited for.
template <class Tile, class Shape, class Source, bool Widens = Source::kWidens>
struct TileFiller {
  using Share = TileCopy<Tile, Shape::kWaves>;
  static constexpr int kWrites = 0;  // of LDS, by instructions of the wave

  Share share;

  HK_DEVICE TileFiller(i32 wave, Lane lane, RowStrides strides) : share(wave, lane, strides) {}

  template <class From>
  HK_DEVICE void fill(Tile dst, const From& from) {
    copy(dst, from, share);
  }
};

// Codes are loaded a tile ahead: what is filled is what `from` was before.
template <class Tile, class Shape, class Source>
struct TileFiller<Tile, Shape, Source, true> {
  using Share = WideningCopy<Tile, Shape::kWaves>;
  static constexpr int kWrites = 2;

  Share share;
  Codes codes;

  HK_DEVICE TileFiller(i32 wave, Lane lane, RowStrides strides) : share(wave, lane, strides) {}

  HK_DEVICE Codes load(BoundedView from) const { return load_words<4>(from, share.source[0]); }
  HK_DEVICE Codes load(const u64 (&from)[1]) const {
    return *(const __attribute__((address_space(1))) Codes*)from[0];
  }
  HK_DEVICE void store(Tile dst) const { widen<typename Source::Code>(dst, codes, share); }
  template <class From>
  HK_DEVICE void fill(Tile dst, const From& from) {
    store(dst);
    codes = load(from);
  }
};

}  // namespace hk::attention
