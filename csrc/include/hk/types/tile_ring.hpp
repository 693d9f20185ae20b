// A place in a ring of shared tiles. Two of them go round each ring: one ahead, where tiles are
// copied to, and one behind, where they are read.
#pragma once

#include "shared_tile.hpp"

namespace hk {

template <class Tile, int Stages>
struct TileRing {
  static constexpr int kBytes = Stages * Tile::kBytes;
  u32 base;       // LDS byte
  u32 stage = 0;  // byte from base of the tile at hand

  HK_DEVICE Tile tile() const { return {base + stage}; }
  HK_DEVICE Tile tile(int index) const { return {base + index * Tile::kBytes}; }
  HK_DEVICE TileRing at(int index) const { return {base, u32(index * Tile::kBytes)}; }
  HK_DEVICE void advance() { stage = stage == kBytes - Tile::kBytes ? 0 : stage + Tile::kBytes; }
};

}  // namespace hk
