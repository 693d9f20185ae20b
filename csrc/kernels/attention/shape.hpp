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
  using Turns = PingPong<kWaves>;
  // Tiles of K and V in LDS. Step j copies K of tile j + 4 and V of tile j + 3; late waves are still
  // reading V of tile j - 1 then.
  static constexpr int kKeyStages = 4, kValueStages = kKeyStages + Turns::kLate;

  using Tile = SharedTile<T, kTileKeys, HeadSize, swizzle::SpreadRows<HeadSize* int(sizeof(T))>>;
};

// What a wave computes in one step, and the slots that it does it in: one mma each.
template <class Shape>
struct Step {
  using Matrix = Mma<typename Shape::Element>;
  static constexpr int kKeyBlocks = Shape::kTileKeys / Matrix::kRows;
  static constexpr int kChannelBlocks = Shape::kHeadSize / Matrix::kRows;
  static constexpr int kChannelSteps = Shape::kHeadSize / Matrix::kDepth;
  static constexpr int kKeySteps = Shape::kTileKeys / Matrix::kDepth;
  static constexpr int kHalf = kKeyBlocks * kChannelSteps;  // slots of a phase
  static constexpr int kSlots = 2 * kHalf;
  static_assert(kHalf == kChannelBlocks * kKeySteps && Shape::kWaveRows == Matrix::kCols);
};

}  // namespace hk::attention
