// A ring of shared tiles, filled ahead and read behind.
#pragma once

#include "shared_tile.hpp"

namespace hk {

// A ring of tiles in LDS: one is read next, and another one is copied to next. That is the tile
// before, or an earlier one while other waves may still be reading `Held` tiles.
template <class Tile, int Stages, int Held = 0>
struct TileRing {
  static constexpr int kBytes = Stages * Tile::kBytes;
  u32 base;                   // LDS byte
  u32 stage = 0;              // byte from base of the tile that is read next
  u32 before[1 + Held] = {};  // of those before it, the last one first

  HK_DEVICE Tile tile() const { return {base + stage}; }
  HK_DEVICE Tile tile(int index) const { return {base + index * Tile::kBytes}; }
  HK_DEVICE Tile free_tile() const { return {base + before[Held]}; }

  HK_DEVICE void start_at(int index) {
    stage = index * Tile::kBytes;
    static_for<0, 1 + Held>(
        [&](auto i) { before[i] = (index + Stages - 1 - i) % Stages * Tile::kBytes; });
  }
  HK_DEVICE void advance() {
    static_for<0, Held>([&](auto i) { before[Held - i] = before[Held - 1 - i]; });
    before[0] = stage;
    stage = stage == kBytes - Tile::kBytes ? 0 : stage + Tile::kBytes;
  }
};

}  // namespace hk
