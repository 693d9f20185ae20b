// The sizes of the gemm kernels' tiles, for each arch.
#pragma once

#include "hk/args/gemm.hpp"
#include "hk/hk.hpp"

namespace hk::gemm {

template <class Arch, class A, class B>
struct Shape;

template <class ElementA, class ElementB>
struct Shape<arch::Gfx950, ElementA, ElementB> {
  using A = ElementA;
  using B = ElementB;
  static constexpr int kTileRows = 256, kTileColumns = 256;  // of C, computed by a workgroup
  static constexpr int kStep = 64;                           // depth
  static constexpr int kStages = 2;                          // steps in LDS
  static constexpr int kRowWaves = 4, kColumnWaves = 2;
  static constexpr int kWavesPerSimd = 2;

  template <class T, int Rows>
  using Tile = SharedTile<T, Rows, kStep, swizzle::SpreadRows<kStep* int(sizeof(T))>>;
};

// What follows from a shape.
template <class Shape>
struct Sizes {
  static constexpr int kWaves = Shape::kRowWaves * Shape::kColumnWaves,
                       kThreads = kWaves * arch::kLanes;
  static constexpr int kWaveRows = Shape::kTileRows / Shape::kRowWaves;
  static constexpr int kWaveColumns = Shape::kTileColumns / Shape::kColumnWaves;
  using TileA = typename Shape::template Tile<typename Shape::A, Shape::kTileRows>;
  using TileB = typename Shape::template Tile<typename Shape::B, Shape::kTileColumns>;
  using RingA = TileRing<TileA, Shape::kStages>;
  using RingB = TileRing<TileB, Shape::kStages>;
  static constexpr int kLdsBytes = RingA::kBytes + RingB::kBytes;
  static_assert(kLdsBytes <= arch::kLdsBytes);
};

}  // namespace hk::gemm
