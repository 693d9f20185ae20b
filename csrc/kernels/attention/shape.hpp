// The sizes of the attention kernels' tiles.
#pragma once

#include "hk/args/attention_prefill.hpp"
#include "hk/hk.hpp"

namespace hk::attention {

constexpr int kWaves = AttentionPrefillArgs::kThreads / arch::kLanes;
constexpr int kWaveRows = AttentionPrefillArgs::kQueryRows / kWaves;  // query rows of a wave
constexpr int kTileKeys = 64;
// Tiles of K and V in LDS. V of a tile is read half a step after K of the tile after it, so that
// one more of V is in use while as many of each are on their way.
constexpr int kKeyStages = 4, kValueStages = 5;

}  // namespace hk::attention
