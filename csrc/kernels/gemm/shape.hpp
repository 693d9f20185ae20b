// The sizes of a gemm kernel's tiles.
#pragma once

#include "format.hpp"
#include "half_rows.hpp"
#include "six_bit_rows.hpp"
#include "hk/args/gemm.hpp"

namespace hk::gemm {

// A tile of rows that lie 16 after 16 in memory, 16 bytes of each side by side: as in LDS. Where
// `Halves`, a half of the wave has 32 neighbours of a row.
template <class Element, int Rows, int RowBytes, bool Halves = false>
using PackedTile =
    SharedTile<i16, Rows, RowBytes / 2,
               Conditional<kElementBits<Element> == 6, swizzle::SixBitRows<RowBytes>,
                           Conditional<Halves && kElementBits<Element> == 8,
                                       swizzle::HalfRows<swizzle::PlainRows<RowBytes>, 2>,
                                       swizzle::PlainRows<RowBytes>>>>;

// Rows x Columns of C are computed by a workgroup, in steps of the depth.
template <class Format_, int Rows, int Columns>
struct Tiles {
  using Format = Format_;
  static constexpr int kTileRows = Rows, kTileColumns = Columns;
  // Whether workgroups may share the depth. Large tiles do without: there are enough of them.
  static constexpr bool kSplits = Rows * Columns <= 128 * 128;

  static constexpr int kStep = Format::kStep, kParts = kStep / Format::kPartDepth;
  static constexpr int kStepBytes = kStep * kElementBits<typename Format::W> / 8,
                       kRowBytesA = kStep * kElementBits<typename Format::A> / 8;
  static constexpr bool kHalves = Format::kScales == Scales::kMxWeights;
  using LayoutA =
      Conditional<kHalves, swizzle::HalfRows<swizzle::SpreadRows<kRowBytesA>, Format::kWordsA / 4>,
                  swizzle::SpreadRows<kRowBytesA>>;
  using TileA = Conditional<Format::kPackedA, PackedTile<typename Format::A, Rows, kRowBytesA>,
                            SharedTile<i16, Rows, kRowBytesA / 2, LayoutA>>;
};

// RowWaves x ColumnWaves waves have a part of the tile each, and all of the depth.
template <class Format, int Rows, int Columns, int RowWaves, int ColumnWaves, int Stages,
          int WavesPerSimd>
struct Shape : Tiles<Format, Rows, Columns> {
  using typename Tiles<Format, Rows, Columns>::TileA;
  static constexpr int kRowWaves = RowWaves, kColumnWaves = ColumnWaves;
  static constexpr int kWaves = RowWaves * ColumnWaves, kThreads = kWaves * arch::kLanes;
  static constexpr int kWaveRows = Rows / RowWaves, kWaveColumns = Columns / ColumnWaves;
  static constexpr int kStages = Stages;  // steps in LDS
  static constexpr int kWavesPerSimd = WavesPerSimd;
  static constexpr bool kDeep = false;
  static constexpr int kCopyingWaves = kWaves;  // that share a step's copies
  static constexpr int kNextStep = 1;           // from a wave's step to its next one

  // A wave's first row and column of the tile.
  HK_DEVICE static constexpr i32 row_of(i32 wave) { return wave % RowWaves * kWaveRows; }
  HK_DEVICE static constexpr i32 column_of(i32 wave) { return wave / RowWaves * kWaveColumns; }

  using Tiles<Format, Rows, Columns>::kHalves, Tiles<Format, Rows, Columns>::kStepBytes;
  using TileW = PackedTile<typename Format::W, Columns, kStepBytes, kHalves>;
  using RingA = TileRing<TileA, Stages>;
  using RingW = TileRing<TileW, Stages>;
  // The copies that each wave makes of a step's scales, a word for a lane: of its own rows, or its
  // share of the tile's rows and columns.
  static constexpr int kScaleCopies =
      Format::kScales == Scales::kBlocks ? ceil_div(kWaveRows, arch::kLanes) : 0;
  static constexpr int kScaleBytes = Stages * kScaleCopies * arch::kLanes * 4;
  static constexpr int kLdsBytes = RingA::kBytes + RingW::kBytes + kWaves * kScaleBytes;
  static_assert(kLdsBytes <= arch::kLdsBytes);
};

// Every wave has all of the tile, and every DepthWaves-th step: of few rows, whose weights go past
// the LDS. Of a wave `Ahead` steps are on their way or in use.
template <class Format, int Rows, int Columns, int DepthWaves, int Ahead, int WavesPerSimd>
struct DeepShape : Tiles<Format, Rows, Columns> {
  using typename Tiles<Format, Rows, Columns>::TileA;
  static constexpr int kWaves = DepthWaves, kThreads = kWaves * arch::kLanes;
  static constexpr int kWaveRows = Rows, kWaveColumns = Columns;
  static constexpr int kStages = Ahead;
  static constexpr int kWavesPerSimd = WavesPerSimd;
  static constexpr bool kDeep = true;
  static constexpr int kCopyingWaves = 1;
  static constexpr int kNextStep = DepthWaves;

  HK_DEVICE static constexpr i32 row_of(i32) { return 0; }
  HK_DEVICE static constexpr i32 column_of(i32) { return 0; }

  using RingA = TileRing<TileA, Ahead>;
  static constexpr int kScaleCopies =
      Format::kScales == Scales::kBlocks ? ceil_div(Rows, arch::kLanes) : 0;
  static constexpr int kScaleBytes = Ahead * kScaleCopies * arch::kLanes * 4;
  // Bytes of LDS for the wave's copies, and then for its sums.
  static constexpr int kWaveBytes =
      max(RingA::kBytes + kScaleBytes, int(Rows * Columns * sizeof(f32)));
  // Blocks of C that a wave stores once the waves' sums are added up: a column of 32 x 32 blocks.
  static constexpr int kBlocks = Rows * Columns / (32 * 32);
  static constexpr int kOwnBlocks = ceil_div(kBlocks, DepthWaves);
  static constexpr int kLdsBytes = kWaves * kWaveBytes;
  static_assert(kLdsBytes <= arch::kLdsBytes && (Rows / 32) % kOwnBlocks == 0);
};

// A wave's share of a tile that it stores.
template <class Format_, int Rows, int Columns>
struct OwnShape {
  using Format = Format_;
  static constexpr int kWaveRows = Rows, kWaveColumns = Columns;
};

}  // namespace hk::gemm
