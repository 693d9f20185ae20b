// Tiles in registers, spread over the 64 lanes of a wave as the matrix unit wants them.
#pragma once

#include "../arch/arch.hpp"

namespace hk {

using arch::Mma;

// What one lane holds of a 32 x Mma::kDepth operand: neighbours along the depth.
template <class T>
struct Fragment {
  static constexpr int kWords = Mma::kOperand * int(sizeof(T)) / 4;
  Vec<u32, kWords> words;
  HK_DEVICE Vec<T, Mma::kOperand> elements() const { return bit_cast<Vec<T, Mma::kOperand>>(words); }
};

// Rows x Depth of an A operand, or Depth x Rows of a B operand.
template <class T, int Rows, int Depth>
struct OperandTile {
  static constexpr int kBlocks = Rows / Mma::kRows, kSteps = Depth / Mma::kDepth;
  Fragment<T> part[kBlocks][kSteps];
};

// Rows x Cols of results: a lane owns one column of each block and half of its rows.
template <int Rows, int Cols>
struct ResultTile {
  static constexpr int kRowBlocks = Rows / Mma::kRows, kColBlocks = Cols / Mma::kCols;
  Vec<f32, Mma::kResult> block[kRowBlocks][kColBlocks];
};

// One value per column of a ResultTile block; both halves of the wave hold the same 32 values.
using ColumnVector = f32;

struct Lane {
  int id;    // 0 to 63
  int col;   // row of an A operand, column of a B operand or result
  int half;  // which half of the depth, or of the rows
};

HK_DEVICE Lane this_lane() {
  const int id = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  return {id, id % 32, id / 32};
}

// The wave's number in its workgroup, in a scalar register.
HK_DEVICE int this_wave() {
  return __builtin_amdgcn_readfirstlane(__builtin_amdgcn_workitem_id_x() / arch::kLanes);
}

}  // namespace hk
