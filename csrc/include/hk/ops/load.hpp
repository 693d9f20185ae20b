// Shared memory to registers: operand fragments for the matrix unit.
//
// A load only starts here. Its fragment holds nothing until `wait_lds` names it, and the compiler
// must not touch it before: the wait takes it as an operand.
#pragma once

#include "../schedule.hpp"
#include "../types/global_view.hpp"
#include "../types/register_tile.hpp"
#include "../types/shared_tile.hpp"

namespace hk {

// A tile whose rows are the operand's rows (A) or columns (B): each lane reads along a row.
template <class Tile>
struct RowReader {
  using Layout = typename Tile::Layout;
  static_assert(DefaultShape::kOperand * sizeof(typename Tile::Element) == 16, "a fragment is read as one chunk");
  u32 address[2];  // of even and odd steps: their chunks differ in a mixed bit

  // Of the tile's rows from `first_row` on, a multiple of 16.
  HK_DEVICE static RowReader of(Lane lane, int first_row = 0) {
    const int row = first_row + lane.col;
    return {{u32(Layout::offset(row, lane.half)), u32(Layout::offset(row, 2 + lane.half))}};
  }
  HK_DEVICE RowReader at(Tile tile) const { return {{address[0] + tile.base, address[1] + tile.base}}; }
};

// A tile whose rows are the depth: each lane reads down a column. The depth index of a lane's
// element e is 8*(e/4) + 4*half + e%4, the order in which a result block holds its rows, so that
// a converted result is the other operand without moving between lanes.
template <class Tile>
struct ColumnReader {
  using Layout = typename Tile::Layout;
  u32 address[2];  // of elements 0-3 and 4-7

  HK_DEVICE static ColumnReader of(Lane lane) {
    const int row = 4 * lane.half + lane.id % 16 / 4;
    const int chunk = lane.id / 16 % 2 * 2 + lane.id % 4 / 2, byte = lane.id % 2 * 8;
    return {{u32(Layout::offset(row, chunk) + byte), u32(Layout::offset(row + 8, chunk) + byte)}};
  }
  HK_DEVICE ColumnReader at(Tile tile) const { return {{address[0] + tile.base, address[1] + tile.base}}; }
};

// Operand rows 32*Block to +32, depth 16*Step to +16.
template <int Block, int Step, class Tile>
HK_DEVICE void load(Fragment<typename Tile::Element>& dst, const RowReader<Tile>& src) {
  constexpr int kOffset = Tile::Layout::offset(DefaultShape::kRows * Block, 0) + Step / 2 * 64;
  arch::read_lds<kOffset>(dst.words, src.address[Step % 2]);
}

template <int Block, int Step, class Tile>
HK_DEVICE void load(Fragment<typename Tile::Element>& dst, const ColumnReader<Tile>& src) {
  constexpr int kOffset = Tile::Layout::offset(DefaultShape::kDepth * Step, 0) + Block * 64;
  Vec<u32, 2> low, high;
  arch::read_lds_transposed<kOffset>(low, src.address[0]);
  arch::read_lds_transposed<kOffset>(high, src.address[1]);
  dst.words = __builtin_shufflevector(low, high, 0, 1, 2, 3);
}

// Fragments of an operand that stays in registers, from rows in global memory.
template <class T, int Rows, int Depth, class Shape>
HK_DEVICE void load(OperandTile<T, Rows, Depth, Shape>& dst, BoundedView src, u32 row_bytes, Lane lane) {
  static_for<0, Rows / Shape::kRows>([&](auto block) {
    static_for<0, Depth / Shape::kDepth>([&](auto step) {
      const u32 channel = Shape::kDepth * step.value + Shape::depth(0, lane.group<Shape>());
      const u32 offset = (Shape::kRows * block.value + lane.line<Shape>()) * row_bytes + channel * sizeof(T);
      dst.part[block][step].words = load_words<Fragment<T, Shape>::kWords>(src, offset);
    });
  });
}

// At most `Pending` LDS reads stay outstanding; the fragments named are then whole.
template <int Pending, class... T, class... Shape>
HK_DEVICE void wait_lds(Fragment<T, Shape>&... ready) {
  arch::wait<arch::kNoWait, Pending>();
  settle_vector(ready.words...);
}

// The same of whole arrays of fragments.
template <int Pending, class T, class Shape, int... Count>
HK_DEVICE void wait_lds(Fragment<T, Shape> (&... ready)[Count]) {
  wait_lds<Pending>();
  const auto settle = [](auto& fragments) {
    for (auto& fragment : fragments) settle_vector(fragment.words);
  };
  (settle(ready), ...);
}

}  // namespace hk
