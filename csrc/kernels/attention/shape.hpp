// The sizes of the attention kernels' tiles, for each arch.
#pragma once

#include "hk/args/attention_prefill.hpp"
#include "hk/hk.hpp"

namespace hk::attention {

template <class Arch, class T, int HeadSize>
struct Shape;

template <class T, int HeadSize>
struct Shape<arch::Gfx950, T, HeadSize> {
  using Element = T;
  static constexpr int kHeadSize = HeadSize;
  static constexpr int kWaves = 8, kThreads = kWaves * arch::kLanes;
  static constexpr int kWavesPerSimd = 2;
  static constexpr int kWaveRows = 32,
                       kQueryRows = kWaves * kWaveRows;  // of a wave, of a workgroup
  static constexpr int kTileKeys = 64;
  // Tiles of K and V in LDS. V of a tile is read half a step after K of the tile after it, so that
  // one more of V is in use while as many of each are on their way.
  static constexpr int kKeyStages = 4, kValueStages = 5;
  static constexpr int kTilesInFlight = 3;  // whose copies no phase waits for

  using Tile = SharedTile<T, kTileKeys, HeadSize, swizzle::SpreadRows<HeadSize* int(sizeof(T))>>;
};

}  // namespace hk::attention
