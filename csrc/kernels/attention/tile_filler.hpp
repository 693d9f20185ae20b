// How a wave's share of a tile comes to LDS: copied as it is, or through registers, widened.
#pragma once

#include "hk/ops/widen.hpp"
#include "shape.hpp"

namespace hk::attention {

// Codes of a tile that a wave's loads bring.
template <int Loads>
struct Loaded {
  Codes of[Loads];
};

// Copies past the registers. They land by themselves, and are waited for.
template <class Tile, class Shape, class Source, bool Widens = Source::kWidens>
struct TileFiller {
  using Share = TileCopy<Tile, Shape::kWaves>;
  // One wave alone on a SIMD has no other that would work while its copies wait for each other. Not
  // where waves share rows: their steps are short, and have the slots of one piece.
  static constexpr bool kAlone = Shape::kWavesPerSimd == 1 && Shape::kKeyParts == 1;
  static constexpr int kPieces = kAlone ? Share::kCopies : 1;
  static constexpr int kWrites = 0;  // of LDS, by instructions of the wave
  HK_DEVICE static constexpr bool writes(int) { return false; }
  using Loaded = attention::Loaded<1>;  // never

  Share share;

  HK_DEVICE TileFiller(i32 wave, Lane lane, RowStrides strides) : share(wave, lane, strides) {}

  HK_DEVICE void end_rows(i32 channels, u32 elsewhere, i32 wave, Lane lane) {
    share.end_rows(channels * sizeof(typename Tile::Element), elsewhere, wave, lane);
  }

  template <int Piece, class From>
  HK_DEVICE void fill(Tile dst, const From& from) {
    constexpr int kCopies = Share::kCopies / kPieces;
    static_for<Piece * kCopies, (Piece + 1) * kCopies>(
        [&](auto i) { copy<i.value>(dst, from, share); });
  }
};

// Codes are loaded a tile ahead: what is filled is what `from` was before. In pieces of four codes,
// which fit between matrix instructions; every other one completes an LDS write.
template <class Tile, class Shape, class Source>
struct TileFiller<Tile, Shape, Source, true> {
  using Share = WideningCopy<Tile, Shape::kWaves>;
  static constexpr int kLoads = Share::kCopies, kPieces = 4 * kLoads, kWrites = 2 * kLoads;
  HK_DEVICE static constexpr bool writes(int piece) { return piece % 2 == 1; }
  using Loaded = attention::Loaded<kLoads>;

  Share share;
  u32 lane_row;  // of the lane's first code, from the wave's
  Loaded codes;
  Vec<u32, 4> wide;  // of them, the half at hand

  HK_DEVICE TileFiller(i32 wave, Lane lane, RowStrides strides)
      : share(wave, lane, strides), lane_row(Share::row(0, wave, lane)) {}

  // Zeros for codes of rows before the tile's row `first`.
  HK_DEVICE void keep_from(Loaded& src, i32 first) const {
    for (int i = 0; i < kLoads; ++i)
      hk::keep_from<typename Tile::Layout>(src.of[i], first - share.first_row, lane_row);
  }

  template <class From>
  HK_DEVICE Loaded load(const From& from) const {
    Loaded loaded;
    static_for<0, kLoads>([&](auto i) { loaded.of[i] = load<i.value>(from); });
    return loaded;
  }
  HK_DEVICE void store(Tile dst, Loaded src) {
    static_for<0, kPieces>([&](auto i) { store<i.value>(dst, src); });
  }
  template <int Piece, class From>
  HK_DEVICE void fill(Tile dst, const From& from) {
    store<Piece>(dst, codes);
    if constexpr (Piece % 4 == 3) codes.of[Piece / 4] = load<Piece / 4>(from);
  }

 private:
  template <int I>
  HK_DEVICE Codes load(BoundedView from) const {
    return load_words<4>(from, share.source[I]);
  }
  // Loads of whole rows: 16 lanes find their codes side by side.
  template <int I>
  HK_DEVICE Codes load(const u64 (&from)[1]) const {
    return ((const __attribute__((address_space(1))) Codes*)from[0])[4 * I];
  }
  template <int Piece>
  HK_DEVICE void store(Tile dst, Loaded src) {
    constexpr int kLoad = Piece / 4;
    widen<Piece % 4, typename Tile::Element>(wide, src.of[kLoad]);
    if constexpr (writes(Piece)) hk::store<kLoad, Piece % 4 / 2>(dst, wide, share);
  }
};

}  // namespace hk::attention
