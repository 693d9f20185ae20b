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

// Operand lines of block `Block`, depth of step `Step`, along the tile's rows or down its columns.
template <int Block, int Step, class T, class Shape, class Reader>
HK_DEVICE void load(Fragment<T, Shape>& dst, const Reader& src) {
  src.template read<Block, Step>(dst);
}

// Fragments of an operand that stays in registers, from rows in global memory.
template <class T, int Rows, int Depth, class Shape>
HK_DEVICE void load(OperandTile<T, Rows, Depth, Shape>& dst, BoundedView src, u32 row_bytes,
                    Lane lane) {
  static_for<0, Rows / Shape::kRows>([&](auto block) {
    static_for<0, Depth / Shape::kDepth>([&](auto step) {
      const u32 channel = Shape::kDepth * step.value + Shape::depth(0, lane.group<Shape>());
      const u32 offset =
          (Shape::kRows * block.value + lane.line<Shape>()) * row_bytes + channel * sizeof(T);
      dst.part[block][step].words = load_words<Fragment<T, Shape>::kWords>(src, offset);
    });
  });
}

// One float32 for each column of a block.
HK_DEVICE void load(ColumnVector& dst, BoundedView src, Lane lane) {
  dst = bit_cast<f32>(
      __builtin_amdgcn_raw_buffer_load_b32(src.descriptor, lane.col * sizeof(f32), 0, 0));
}

// One value for each row of a block, the same in all columns.
template <class T>
HK_DEVICE void load_rows(Block& dst, BoundedView src, Lane lane) {
  static_for<0, DefaultShape::kResult / 4>([&](auto quad) {
    const u32 offset = DefaultShape::row(4 * quad, lane.half) * sizeof(T);
    const auto values = bit_cast<Vec<T, 4>>(load_words<int(sizeof(T))>(src, offset));
    static_for<0, 4>([&](auto i) { dst[4 * quad + i] = f32(values[i.value]); });
  });
}

// Waits until at most `Pending` LDS reads are outstanding; the fragments named are then whole.
template <int Pending, class... T, class... Shape>
HK_DEVICE void wait_lds(Fragment<T, Shape>&... ready) {
  arch::wait<arch::kNoWait, Pending>();
  pin_vector(ready.words...);
}

// The same of whole arrays of fragments.
template <int Pending, class T, class Shape, int... Count>
HK_DEVICE void wait_lds(Fragment<T, Shape> (&... ready)[Count]) {
  wait_lds<Pending>();
  const auto pin = [](auto& fragments) {
    for (auto& fragment : fragments) pin_vector(fragment.words);
  };
  (pin(ready), ...);
}

}  // namespace hk
