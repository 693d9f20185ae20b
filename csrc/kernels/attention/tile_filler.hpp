// How a wave's share of a tile comes to LDS: copied as it is, or through registers, widened.
#pragma once

#include "hk/ops/widen.hpp"
#include "shape.hpp"

namespace hk::attention {

// Copies past the registers. They land by themselves, and are waited for.
template <class Tile, class Shape, class Source, bool Widens = Source::kWidens>
struct TileFiller {
  using Share = TileCopy<Tile, Shape::kWaves>;
  static constexpr int kPieces = 1;
  static constexpr int kWrites = 0;  // of LDS, by instructions of the wave
  HK_DEVICE static constexpr bool writes(int) { return false; }

  Share share;

  HK_DEVICE TileFiller(i32 wave, Lane lane, RowStrides strides) : share(wave, lane, strides) {}

  template <int, class From>
  HK_DEVICE void fill(Tile dst, const From& from) {
    copy(dst, from, share);
  }
};

// Codes are loaded a tile ahead: what is filled is what `from` was before. In pieces of four codes,
// which fit between matrix instructions; every other one completes an LDS write.
template <class Tile, class Shape, class Source>
struct TileFiller<Tile, Shape, Source, true> {
  using Share = WideningCopy<Tile, Shape::kWaves>;
  static constexpr int kPieces = 4, kWrites = 2;
  HK_DEVICE static constexpr bool writes(int piece) { return piece % 2 == 1; }

  Share share;
  u32 lane_row;  // of the lane's first code, from the wave's
  Codes codes;
  Vec<u32, 4> wide;  // of them, the half at hand

  HK_DEVICE TileFiller(i32 wave, Lane lane, RowStrides strides)
      : share(wave, lane, strides), lane_row(Share::row(0, wave, lane)) {}

  // Zeros for codes of rows before the tile's row `first`.
  HK_DEVICE void keep_from(Codes& src, i32 first) const {
    hk::keep_from<typename Tile::Layout>(src, first - share.first_row, lane_row);
  }

  HK_DEVICE Codes load(BoundedView from) const { return load_words<4>(from, share.source[0]); }
  HK_DEVICE Codes load(const u64 (&from)[1]) const {
    return *(const __attribute__((address_space(1))) Codes*)from[0];
  }
  HK_DEVICE void store(Tile dst, Codes src) {
    static_for<0, kPieces>([&](auto i) { store<i.value>(dst, src); });
  }
  template <int Piece, class From>
  HK_DEVICE void fill(Tile dst, const From& from) {
    store<Piece>(dst, codes);
    if constexpr (Piece == kPieces - 1) codes = load(from);
  }

 private:
  template <int Piece>
  HK_DEVICE void store(Tile dst, Codes src) {
    widen<Piece, typename Source::Code, typename Tile::Element>(wide, src);
    if constexpr (writes(Piece)) hk::store<Piece / 2>(dst, wide, share);
  }
};

}  // namespace hk::attention
