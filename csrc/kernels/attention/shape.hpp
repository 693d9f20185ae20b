// The sizes of the attention kernels' tiles, for each arch.
#pragma once

#include "hk/args/attention_prefill.hpp"
#include "hk/hk.hpp"

namespace hk::attention {

template <class T, int HeadSize, int Waves, int KeyParts, int WavesPerSimd,
          template <int> class KeepStep, int KeyStages, int TileKeys = 64>
struct Sizes {
  using Element = T;
  using Turns = KeepStep<Waves>;
  static constexpr int kHeadSize = HeadSize;
  static constexpr bool kPadded = false;  // the launch says how many channels there are
  static constexpr int kWaves = Waves, kThreads = Waves * arch::kLanes;
  static constexpr int kWavesPerSimd = WavesPerSimd;
  // A wave's query rows and keys: of each tile all keys, or half of them.
  static constexpr int kKeyParts = KeyParts;
  static constexpr int kWaveRows = 32, kQueryRows = Waves / KeyParts * kWaveRows;
  static constexpr int kTileKeys = TileKeys, kWaveKeys = kTileKeys / KeyParts;
  // Tiles of K and V in LDS: step j copies the K that comes `kKeyStages` after its own, and V of
  // the tile before. Late waves are still reading V of tile j - 1 then.
  static constexpr int kKeyStages = KeyStages;

  template <template <int> class Swizzle>
  using TileIn = SharedTile<T, kTileKeys, HeadSize, Swizzle<HeadSize* int(sizeof(T))>>;
  using Tile = TileIn<swizzle::SpreadRows>;

  // The waves go through the rows once for each part of the keys.
  HK_DEVICE static i32 row(i32 wave) { return wave % (Waves / KeyParts) * kWaveRows; }
  HK_DEVICE static i32 part(i32 wave) { return wave / (Waves / KeyParts); }
  HK_DEVICE static i32 partner(i32 wave) { return (wave + Waves / KeyParts) % Waves; }
};

template <class Arch, class T, int HeadSize, int QueryRows>
struct Shape;

// d=128, with registers for two waves on each SIMD. Both are of one workgroup, so that all waves
// share the tiles.
template <class T>
struct Shape<arch::Gfx950, T, 128, 256> : Sizes<T, 128, 8, 1, 2, PingPong, 4> {};

// d=128 with half the rows and as many waves, for launches that would not fill the device
// otherwise.
template <class T>
struct Shape<arch::Gfx950, T, 128, 128> : Sizes<T, 128, 8, 2, 2, PingPong, 4> {};

// d=128 with a quarter of the rows, for launches that would still leave compute units without work:
// half as many waves, one on each SIMD.
template <class T>
struct Shape<arch::Gfx950, T, 128, 64> : Sizes<T, 128, 4, 2, 1, Together, 4> {};

// d=64, with registers for three waves on each SIMD, and LDS for three workgroups. Each of these
// has a wave on every SIMD.
template <class T>
struct Shape<arch::Gfx950, T, 64, 128> : Sizes<T, 64, 4, 1, 3, Together, 3> {};

// d=256, with registers for one wave on each SIMD. Tiles have half as many keys, so that a step has
// the slots that it has at d=128.
template <class T>
struct Shape<arch::Gfx950, T, 256, 128> : Sizes<T, 256, 4, 1, 1, PingPong, 4, 32> {};

// Decode: few rows, so memory bounds it, and small tiles keep as many bytes in flight as large ones.
// Each wave copies 16 keys at most, so that they lie in one page. Of a request with few rows only
// the first wave computes. So a compute unit holds as many workgroups as fit: four of 64 rows at
// d=64 (six if the cache has codes), three at d=128. Of 128 rows, and of padded ones, it holds two at
// most.
template <class Arch, class T, int HeadSize, int QueryRows>
struct DecodeShape;
// Three stages of 64 rows leave LDS for a third workgroup at d=128, and short requests copy less past
// their end.
template <int QueryRows>
constexpr int kDecodeStages = QueryRows == 64 ? 3 : 4;
template <class T, int QueryRows>
struct DecodeShape<arch::Gfx950, T, 64, QueryRows>
    : Sizes<T, 64, QueryRows / 32, 1, 1, Together, kDecodeStages<QueryRows>, QueryRows / 2> {};
template <class T, int QueryRows>
struct DecodeShape<arch::Gfx950, T, 128, QueryRows>
    : Sizes<T, 128, QueryRows / 32, 1, 1, Together, kDecodeStages<QueryRows>, 32> {};
template <class T, int QueryRows>
struct DecodeShape<arch::Gfx950, T, 256, QueryRows>
    : Sizes<T, 256, QueryRows / 32, 1, 1, Together, 3, 32> {};

// The same sizes for any multiple of 8 channels: the others are zeros.
template <class Of>
struct Padded : Of {
  static constexpr bool kPadded = true;
};

// Channels of queries and keys, and of values and out.
struct Channels {
  i32 keys, values;
};

template <class Shape>
HK_DEVICE Channels channels_of(const AttentionPrefillArgs& args) {
  if constexpr (Shape::kPadded) return {args.head_size, args.value_size};
  return {Shape::kHeadSize, Shape::kHeadSize};
}

// The tiles of keys and values, and how the results of a lane lie in them: whole rows, or pieces.
template <class Shape, class Source, bool IsSplit = Source::kSplit>
struct Tiles {
  // Widened keys may be written in any layout; this one takes fewer addresses.
  using Keys = Conditional<Source::kWidens, typename Shape::template TileIn<swizzle::PlainRows>,
                           typename Shape::Tile>;
  using Values = typename Shape::Tile;
  static constexpr int kValueReads = 2;  // LDS reads of a fragment
  HK_DEVICE static constexpr int key(int result, int half) {
    return Mma<typename Shape::Element>::row(result, half);
  }
};
template <class Shape, class Source>
struct Tiles<Shape, Source, true> {
  using Keys = typename Shape::template TileIn<swizzle::SplitRows>;
  using Values = typename Shape::template TileIn<swizzle::SplitColumns>;
  static constexpr int kValueReads = 1;
  HK_DEVICE static constexpr int key(int result, int half) {
    return result / 8 * 16 + 8 * half + result % 8;
  }
};

// The work of a wave in one step, and the slots that it is done in: one mma each.
template <class Shape>
struct Step {
  using Matrix = Mma<typename Shape::Element>;
  static constexpr int kKeyBlocks = Shape::kWaveKeys / Matrix::kRows;
  static constexpr int kChannelBlocks = Shape::kHeadSize / Matrix::kRows;
  static constexpr int kChannelSteps = Shape::kHeadSize / Matrix::kDepth;
  static constexpr int kKeySteps = Shape::kWaveKeys / Matrix::kDepth;
  static constexpr int kHalf = kKeyBlocks * kChannelSteps;  // slots of a phase
  static constexpr int kSlots = 2 * kHalf;
  static constexpr int kAhead =
      kHalf / 2;  // slots by which fragments are loaded ahead of their use
  // The slot from which the LDS reads and look-ups of the step have landed (FragmentSlots).
  static constexpr int kDrained = kSlots - max(kAhead / 2, 2);
  static_assert(kHalf == kChannelBlocks * kKeySteps && Shape::kWaveRows == Matrix::kCols);
};

}  // namespace hk::attention
