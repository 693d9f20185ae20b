// A ring of shared tiles, filled ahead and read behind.
#pragma once

#include "shared_tile.hpp"

namespace hk {

template <class Tile, int Stages>
struct TileRing {
  static constexpr int kBytes = Stages * Tile::kBytes;
  u32 base;       // LDS byte
  u32 stage = 0;  // byte from base of the tile that is read next

  HK_DEVICE Tile tile() const { return {base + stage}; }
  HK_DEVICE Tile tile(int index) const { return {base + index * Tile::kBytes}; }
  HK_DEVICE void advance() { stage = stage == kBytes - Tile::kBytes ? 0 : stage + Tile::kBytes; }
};

}  // namespace hk
