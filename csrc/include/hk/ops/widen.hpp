// Tiles of FP8 codes: from global memory through registers, widened there, to shared memory.
#pragma once

#include "../types/global_view.hpp"
#include "../types/register_tile.hpp"
#include "../types/shared_tile.hpp"

namespace hk {

// Sixteen codes, what a lane loads at once.
using Codes = Vec<u32, 4>;

// The share of one wave of `Waves` in filling a tile: loads of 16 codes for each lane, of the same
// 16 rows. The codes are neighbours along a row, as two pieces of the wide tile, or down a column.
template <class Tile, int Waves>
struct WideningCopy {
  using T = typename Tile::Element;
  using Layout = typename Tile::Layout;
  static constexpr int kRowsSpanned = 16, kLaneRows = 1;
  static constexpr int kWavesPer16 = Waves / (Tile::kRows / 16);
  static constexpr int kCopies = Tile::kRows * Tile::kCols / (Waves * arch::kLanes * 16);
  static_assert(kCopies * Waves * arch::kLanes * 16 == Tile::kRows * Tile::kCols);

  i32 first_row;        // wave-uniform
  u32 source[kCopies];  // byte from first_row, of this lane
  u32 destination;      // byte in the tile, of the first load's first piece

  HK_DEVICE WideningCopy(int wave, Lane lane, RowStrides strides)
      : first_row(wave / kWavesPer16 * 16) {
    const int part = wave % kWavesPer16 * kCopies;
    const auto place = Layout::wide_place(lane.id, part, strides);
    source[0] = place.source;
    for (int i = 1; i < kCopies; ++i)
      source[i] = Layout::wide_place(lane.id, part + i, strides).source;
    destination = first_row / 16 * Layout::kBlocksPer16 * Layout::kBlockStride + place.destination;
  }

  // The row that a lane loads from, counted as TileCopy does.
  HK_DEVICE static u32 row(int, int wave, Lane lane) {
    return Layout::wide_place(lane.id, wave % kWavesPer16, {0}).row;
  }
};

// Zeros for a lane's codes of rows before `first`, which counts as `row` does: of the lane's first
// code.
template <class Layout>
HK_DEVICE void keep_from(Codes& dst, i32 first, u32 row) {
  if constexpr (Layout::kDown)
    static_for<0, 4>([&](auto word) {
      const i32 dropped = first - i32(row) - 4 * word.value;
      dst[word.value] &= dropped >= 4 ? 0u : dropped > 0 ? ~0u << 8 * dropped : ~0u;
    });
  else
    dst = i32(row) < first ? Codes(0) : dst;
}

// Two registers of `dst`, which are a half of a load's codes, from four of them: piece 0 to 3.
template <int Piece, class T>
HK_DEVICE void widen(Vec<u32, 4>& dst, Codes src) {
  static_for<0, 2>(
      [&](auto i) { dst[Piece % 2 * 2 + i.value] = arch::widen_e4m3<T, i.value>(src[Piece]); });
}

// Starts an LDS write of a half of what a lane's load number `I` brought; it counts in `wait_lds`.
template <int I, int Half, class Tile, int Waves>
HK_DEVICE void store(Tile dst, Vec<u32, 4> src, const WideningCopy<Tile, Waves>& share) {
  using Layout = typename Tile::Layout;
  constexpr int kPart = I * Layout::kPartBytes;
  const u32 first = dst.base + share.destination;
  if constexpr (Half == 0)
    arch::write_lds<kPart>(first, src);
  else if constexpr (Layout::kFlips)
    arch::write_lds<kPart>(first ^ Layout::kSecond, src);
  else
    arch::write_lds<kPart + Layout::kSecond>(first, src);
}

}  // namespace hk
