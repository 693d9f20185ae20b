// Tiles in LDS.
#pragma once

#include "split_tiles.hpp"
#include "swizzle.hpp"

namespace hk {

// The LDS byte address of a shared array.
HK_DEVICE u32 shared_address(const void* shared) {
  return u32(u64((const __attribute__((address_space(3))) void*)shared));
}

template <class T, int Rows, int Cols, class Swizzle = swizzle::SpreadRows<Cols* int(sizeof(T))>>
struct SharedTile {
  using Element = T;
  using Layout = Swizzle;
  static constexpr int kRows = Rows, kCols = Cols;
  static constexpr int kBlocks = Rows / Swizzle::kRowsPerBlock;
  static constexpr int kBytes = kBlocks * Swizzle::kBlockStride;
  static_assert(Rows % 16 == 0);

  u32 base;  // byte address in LDS, wave-uniform
};

// Readers of a tile along its rows, or down its columns, as its layout has them.
template <class Tile, class Shape = DefaultShape>
using RowReader = typename Tile::Layout::template RowReader<typename Tile::Element, Shape>;
template <class Tile, class Shape = DefaultShape>
using ColumnReader = typename Tile::Layout::template ColumnReader<typename Tile::Element, Shape>;

}  // namespace hk
