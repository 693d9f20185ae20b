// What happens to the sums on their way to C: a policy of the kernel.
//
//   Epilogue<Out, Steps...>    each step changes the float32 sums, then they are rounded to Out
//
// A step has apply(block, row, column, lane): `block` is 32 x 32 of C^T, `row` and `column` are those
// of C where it begins, wave-uniform.
#pragma once

#include "shape.hpp"

namespace hk::gemm {

template <class Out, class... Steps>
struct Epilogue : Steps... {
  using Output = Out;

  HK_DEVICE void apply(Block& block, i32 row, i32 column, Lane lane) const {
    (this->Steps::apply(block, row, column, lane), ...);
  }
};

// A vector from the element that belongs to a block's first row or column, for as long as the block.
// It ends with the 4 bytes that hold its last element.
template <class T>
HK_DEVICE BoundedView view_from(const T* values, i32 count, i32 first) {
  const u32 bytes = clamp_scalar(count - first, DefaultShape::kRows) * sizeof(T);
  return {address(values) + first * i64(sizeof(T)), u32(ceil_div(bytes, 4) * 4)};
}

// A row of C times its own factor, and a column times its own: float32 [m] and [n].
struct Scales {
  const f32* rows;
  const f32* columns;
  i32 m, n;

  HK_DEVICE void apply(Block& block, i32 row, i32 column, Lane lane) const {
    ColumnVector of_row;
    Block of_column;
    load(of_row, view_from(rows, m, row), lane);
    load_rows<f32>(of_column, view_from(columns, n, column), lane);
    hk::scale(block, block, of_row);
    block *= of_column;
  }
};

// Plus a value for each column of C: [n], allocated up to the 4 bytes that hold its end.
template <class T>
struct Bias {
  const T* values;
  i32 n;

  HK_DEVICE void apply(Block& block, i32, i32 column, Lane lane) const {
    Block added;
    load_rows<T>(added, view_from(values, n, column), lane);
    block += added;
  }
};

}  // namespace hk::gemm
