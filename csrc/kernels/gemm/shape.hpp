// The sizes of a gemm kernel's tiles.
#pragma once

#include "format.hpp"
#include "hk/args/gemm.hpp"

namespace hk::gemm {

// Rows x Columns of C are computed by a workgroup of RowWaves x ColumnWaves waves, in steps of 128
// bytes of a weight's row.
template <class Format_, int Rows, int Columns, int RowWaves, int ColumnWaves, int Stages,
          int WavesPerSimd>
struct Shape {
  using Format = Format_;
  static constexpr int kTileRows = Rows, kTileColumns = Columns;
  static constexpr int kRowWaves = RowWaves, kColumnWaves = ColumnWaves;
  static constexpr int kWaves = RowWaves * ColumnWaves, kThreads = kWaves * arch::kLanes;
  static constexpr int kWaveRows = Rows / RowWaves, kWaveColumns = Columns / ColumnWaves;
  static constexpr int kStages = Stages;  // steps in LDS
  static constexpr int kWavesPerSimd = WavesPerSimd;
  // Whether workgroups may share the depth. Large tiles do without: there are enough of them.
  static constexpr bool kSplits = Rows * Columns <= 128 * 128;

  static constexpr int kStepBytes = 128;  // of a weight's row
  static constexpr int kStep = kStepBytes / kElementBytes<typename Format::W>;
  static constexpr int kParts = kStepBytes / 32 / Format::kPiecesW;
  static constexpr int kRowBytesA = kStep * kElementBytes<typename Format::A>;
  using TileA = SharedTile<i16, Rows, kRowBytesA / 2, swizzle::SpreadRows<kRowBytesA>>;
  using TileW = SharedTile<i16, Columns, kStepBytes / 2, swizzle::PlainRows<kStepBytes>>;
  using RingA = TileRing<TileA, Stages>;
  using RingW = TileRing<TileW, Stages>;
  static constexpr int kLdsBytes = RingA::kBytes + RingW::kBytes;
  static_assert(kLdsBytes <= arch::kLdsBytes);
};

}  // namespace hk::gemm
