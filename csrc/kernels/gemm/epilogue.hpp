// Stores the sums as C: times the scales of rows and columns, plus the bias, rounded to the type of
// C. It is known at run time which of them exist, at the price of a branch each.
#pragma once

#include "shape.hpp"

namespace hk::gemm {

// A vector from the element that belongs to a block's first row or column, for as long as the
// block. It ends with the 4 bytes that hold its last element; a vector that is not there reads as
// zeros.
template <class T>
HK_DEVICE BoundedView view_from(const void* values, i32 count, i32 first) {
  const u32 bytes = clamp_scalar(values ? count - first : 0, DefaultShape::kRows) * sizeof(T);
  return {address(values) + first * i64(sizeof(T)), u32(ceil_div(bytes, 4) * 4)};
}

// A wave's share of C: `row` and `column` are its first ones.
template <class Shape>
class Epilogue {
  static constexpr int kRowBlocks = Shape::kWaveRows / DefaultShape::kCols;
  static constexpr int kColumnBlocks = Shape::kWaveColumns / DefaultShape::kRows;
  // Blocks of columns whose scales and bias are in registers at once.
  static constexpr int kTogether = min(kColumnBlocks, 2);
  static_assert(kColumnBlocks % kTogether == 0);
  using Result = ResultTile<Shape::kWaveColumns, Shape::kWaveRows>;

  const GemmArgs& args_;
  i32 row_, column_;
  Lane lane_;

 public:
  HK_DEVICE Epilogue(const GemmArgs& args, i32 row, i32 column, Lane lane)
      : args_(args), row_(row), column_(column), lane_(lane) {}

  // C's type is asked once: among the blocks it would take branches of each.
  HK_DEVICE void run(const Result& result) const {
    const u32 size = args_.c_type == kGemmF32 ? 4 : 2, row_bytes = args_.c_row * size;
    const u64 base = address(args_.c) + wide_mul(row_, row_bytes) + column_ * size;
    const u32 rows = clamp_scalar(args_.m - row_, Shape::kWaveRows);
    const Rows c{BoundedView(base, rows * row_bytes), row_bytes};
    if (args_.c_type == kGemmBf16)
      run_as<bf16>(result, c);
    else if (args_.c_type == kGemmF16)
      run_as<f16>(result, c);
    else
      run_as<f32>(result, c);
  }

 private:
  // The wave's rows of C, from its first column on.
  struct Rows {
    BoundedView view;
    u32 bytes;  // from row to row
  };

  template <class T>
  HK_DEVICE void run_as(const Result& result, const Rows& c) const {
    if (row_scale() || args_.b_scale || args_.bias) {
      static_for<0, kColumnBlocks / kTogether>([&](auto i) {
        const Vectors vectors = load_vectors(i * kTogether);
        store<T, i * kTogether>(result, c, [&](Block block, auto column, auto row) {
          hk::scale(block, block, vectors.of_row[row]);
          return Block(block * vectors.of_column[column] + vectors.bias[column]);
        });
      });
    } else {
      static_for<0, kColumnBlocks / kTogether>([&](auto i) {
        store<T, i * kTogether>(result, c, [](const Block& block, auto, auto) { return block; });
      });
    }
  }

  // Null if there is none, or the sums have theirs.
  HK_DEVICE const f32* row_scale() const {
    return Shape::Format::kScales == Scales::kVectors ? args_.a_scale : nullptr;
  }

  // The scales and the bias of rows and columns. A missing one is the number that changes nothing.
  struct Vectors {
    ColumnVector of_row[kRowBlocks];
    Block of_column[kTogether], bias[kTogether];
  };

  // Loads those of `kTogether` blocks of columns at once, from `first_block` on: one latency.
  HK_DEVICE Vectors load_vectors(i32 first_block) const {
    Vectors vectors;
    static_for<0, kRowBlocks>([&](auto i) {
      const i32 first = (row_ + 32 * i) * args_.a_scale_row;
      const BoundedView scales = view_from<f32>(row_scale(), args_.m, first);
      vectors.of_row[i] =
          bit_cast<f32>(load_word(scales, lane_.col * args_.a_scale_row * u32(sizeof(f32))));
      if (!row_scale()) vectors.of_row[i] = 1;
    });
    static_for<0, kTogether>([&](auto i) {
      const i32 column = column_ + 32 * (first_block + i);
      load_rows<f32>(vectors.of_column[i], view_from<f32>(args_.b_scale, args_.n, column), lane_);
      if (!args_.b_scale) fill(vectors.of_column[i], 1);
    });
    static_for<0, kTogether>(
        [&](auto i) { load_bias(vectors.bias[i], column_ + 32 * (first_block + i)); });
    return vectors;
  }

  // Zeros if there is none.
  HK_DEVICE void load_bias(Block& dst, i32 column) const {
    fill(dst, 0);
    if (!args_.bias) return;
    load_bias_of<bf16>(dst, kGemmBf16, column);
    load_bias_of<f16>(dst, kGemmF16, column);
    load_bias_of<f32>(dst, kGemmF32, column);
  }

  template <class T>
  HK_DEVICE void load_bias_of(Block& dst, i32 type, i32 column) const {
    if (args_.bias_type == type)
      load_rows<T>(dst, view_from<T>(args_.bias, args_.n, column), lane_);
  }

  // Stores what `finish` makes of each block of sums. A wave whose columns are all below N asks
  // that once.
  template <class T, int First, class F>
  HK_DEVICE void store(const Result& result, const Rows& c, const F& finish) const {
    if (args_.n - column_ >= Shape::kWaveColumns)
      store_blocks<T, First, true>(result, c, finish);
    else
      store_blocks<T, First, false>(result, c, finish);
  }

  template <class T, int First, bool kWhole, class F>
  HK_DEVICE void store_blocks(const Result& result, const Rows& c, const F& finish) const {
    const i32 channels = args_.n - column_;
    static_for<0, kTogether>([&](auto column) {
      static_for<0, kRowBlocks>([&](auto row) {
        Block sums = result.block[First + column][row];
        // else the compiler finishes blocks before it asks whether they are whole, and spills
        if constexpr (!kWhole) pin_vector(sums);
        const Block block = finish(sums, column, row);
        const auto row_of = [&] { return lane_.col * c.bytes + 32 * row * c.bytes; };
        if constexpr (kWhole)
          store_transposed<T>(c.view, row_of(), 32 * (First + column), block, lane_);
        else
          store_transposed_below<T>(c.view, row_of, 32 * (First + column), channels, block, lane_);
        fence_schedule();
      });
    });
  }
};

}  // namespace hk::gemm
