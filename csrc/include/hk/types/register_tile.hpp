// Tiles in registers, spread over the 64 lanes of a wave as the matrix unit wants them.
#pragma once

#include "../arch/arch.hpp"

namespace hk {

using arch::DefaultShape;

// The matrix instruction for operands of A and B: its shape, its lane layouts, the product itself.
template <class A, class B = A, class Shape = DefaultShape>
using Mma = arch::Mma<A, B, Shape>;

// One lane's share of the operand of one matrix instruction: neighbours along the depth.
template <class T, class Shape = DefaultShape>
struct Fragment {
  static constexpr int kWords = Shape::kOperand * int(sizeof(T)) / 4;
  Vec<u32, kWords> words;
  HK_DEVICE Vec<T, Shape::kOperand> elements() const {
    return bit_cast<Vec<T, Shape::kOperand>>(words);
  }
};

// Rows x Depth of an A operand, or Depth x Rows of a B operand.
template <class T, int Rows, int Depth, class Shape = DefaultShape>
struct OperandTile {
  static constexpr int kBlocks = Rows / Shape::kRows, kSteps = Depth / Shape::kDepth;
  Fragment<T, Shape> part[kBlocks][kSteps];
};

// One lane's share of the results of one matrix instruction.
template <class Shape>
using ResultBlock = Vec<f32, Shape::kResult>;
using Block = ResultBlock<DefaultShape>;

// Rows x Cols of results: a lane owns one column of each block and its share of the rows.
template <int Rows, int Cols, class Shape = DefaultShape>
struct ResultTile {
  static constexpr int kRowBlocks = Rows / Shape::kRows, kColBlocks = Cols / Shape::kCols;
  ResultBlock<Shape> block[kRowBlocks][kColBlocks];
};

// One value per column of a ResultTile block; both halves of the wave hold the same 32 values.
using ColumnVector = f32;

struct Lane {
  int id;    // 0 to 63
  int col;   // of the default shape: row of an A operand, column of a B operand or result
  int half;  // of the default shape: which half of the depth, or of the rows

  // The same of any shape. (Those of the default shape are kept: what is derived from `id` where it
  // is used keeps another register alive.)
  template <class Shape>
  HK_DEVICE int line() const {
    return Shape::kRows == DefaultShape::kRows ? col : Shape::line(id);
  }
  template <class Shape>
  HK_DEVICE int group() const {
    return Shape::kRows == DefaultShape::kRows ? half : Shape::group(id);
  }
};

HK_DEVICE Lane this_lane() {
  const int id = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  __builtin_assume(id >= 0 && id < arch::kLanes);
  return {id, DefaultShape::line(id), DefaultShape::group(id)};
}

// The wave's number in its workgroup, in a scalar register; a workgroup has at most 16 waves.
HK_DEVICE int this_wave() {
  const int wave = __builtin_amdgcn_readfirstlane(__builtin_amdgcn_workitem_id_x() / arch::kLanes);
  __builtin_assume(wave >= 0 && wave < 16);
  return wave;
}

}  // namespace hk
