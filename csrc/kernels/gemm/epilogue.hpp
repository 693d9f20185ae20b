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
  using Result = ResultTile<Shape::kWaveColumns, Shape::kWaveRows>;

  const GemmArgs& args_;
  i32 row_, column_;
  Lane lane_;

 public:
  HK_DEVICE Epilogue(const GemmArgs& args, i32 row, i32 column, Lane lane)
      : args_(args), row_(row), column_(column), lane_(lane) {}

  HK_DEVICE void run(const Result& result) const {
    const bool scaled = row_scale() || args_.b_scale || args_.bias;
    static_for<0, kColumnBlocks>([&](auto column) {
      if (scaled) {
        const Vectors vectors = load_vectors(column_ + 32 * column);
        store(result, column, [&](Block block, auto row) {
          hk::scale(block, block, vectors.of_row[row]);
          return Block(block * vectors.of_column + vectors.bias);
        });
      } else {
        store(result, column, [](const Block& block, auto) { return block; });
      }
    });
  }

 private:
  // Null if there is none, or the sums have theirs.
  HK_DEVICE const f32* row_scale() const {
    return Shape::Format::kBlockScales ? nullptr : args_.a_scale;
  }

  // The scales and the bias of rows and columns. A missing one is the number that changes nothing.
  struct Vectors {
    ColumnVector of_row[kRowBlocks];
    Block of_column, bias;
  };

  HK_DEVICE Vectors load_vectors(i32 column) const {
    Vectors vectors;
    static_for<0, kRowBlocks>([&](auto i) {
      const i32 first = (row_ + 32 * i) * args_.a_scale_row;
      const BoundedView scales = view_from<f32>(row_scale(), args_.m, first);
      vectors.of_row[i] =
          bit_cast<f32>(load_word(scales, lane_.col * args_.a_scale_row * u32(sizeof(f32))));
      if (!row_scale()) vectors.of_row[i] = 1;
    });
    load_rows<f32>(vectors.of_column, view_from<f32>(args_.b_scale, args_.n, column), lane_);
    if (!args_.b_scale) fill(vectors.of_column, 1);
    Block other;
    load_bias<bf16>(vectors.bias, kGemmBf16, column);
    load_bias<f16>(other, kGemmF16, column);
    vectors.bias += other;
    load_bias<f32>(other, kGemmF32, column);
    vectors.bias += other;
    return vectors;
  }

  // Zeros if the bias is of another type.
  template <class T>
  HK_DEVICE void load_bias(Block& dst, i32 type, i32 column) const {
    const void* values = args_.bias_type == type ? args_.bias : nullptr;
    load_rows<T>(dst, view_from<T>(values, args_.n, column), lane_);
  }

  template <class F>
  HK_DEVICE void store(const Result& result, auto column, F&& finish) const {
    const u32 size = args_.c_type == kGemmF32 ? 4 : 2, row_bytes = args_.c_row * size;
    const u64 base = address(args_.c) + wide_mul(row_, row_bytes) + column_ * size;
    const i32 channels = args_.n - column_;
    static_for<0, kRowBlocks>([&](auto row) {
      const u32 left = clamp_scalar(args_.m - row_ - 32 * row, DefaultShape::kCols);
      const BoundedView view(base + wide_mul(32 * row, row_bytes), left * row_bytes);
      const Block block = finish(result.block[column][row], row);
      const auto row_of = [&] { return lane_.col * row_bytes; };
      if (args_.c_type == kGemmBf16)
        store_transposed_below<bf16>(view, row_of, 32 * column, channels, block, lane_);
      else if (args_.c_type == kGemmF16)
        store_transposed_below<f16>(view, row_of, 32 * column, channels, block, lane_);
      else
        store_transposed_below<f32>(view, row_of, 32 * column, channels, block, lane_);
      fence_schedule();
    });
  }
};

}  // namespace hk::gemm
