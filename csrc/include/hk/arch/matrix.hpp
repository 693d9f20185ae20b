// Matrix instructions as the tile language sees them: a trait that each arch specialises.
//
// Source: CDNA3 and CDNA4 ISA guides, VOP3P-MAI: dense matrix instructions of a wave of 64 lanes.
#pragma once

#include "../types/vector.hpp"

namespace hk::arch {

// Rows x Cols of results, each a sum over Depth products, and which lane holds what of them. A
// *line* is a row of A or a column of B; the lanes of a *group* hold all lines.
//   operand: lane holds line lane % Rows, kOperand neighbours along the depth
//   result:  lane holds column lane % Cols, rows in quads that are dealt to the groups in turn
template <int Rows, int Cols, int Depth>
struct MmaShape {
  static_assert(Rows == Cols, "one deal of lanes serves both operands");
  static constexpr int kRows = Rows, kCols = Cols, kDepth = Depth;
  static constexpr int kGroups = 64 / Rows;
  static constexpr int kOperand = Depth / kGroups, kResult = Rows * Cols / 64;  // elements per lane

  HK_DEVICE static constexpr int line(int lane) { return lane % Rows; }
  HK_DEVICE static constexpr int group(int lane) { return lane / Rows; }
  HK_DEVICE static constexpr int depth(int element, int group) {
    return kOperand * group + element;
  }
  HK_DEVICE static constexpr int row(int i, int group) {
    return 4 * kGroups * (i / 4) + 4 * group + i % 4;
  }
};

// The instruction for operands of A and B. A specialisation derives from its shape and states
//   static Vec<f32, kResult> multiply(Vec<A, kOperand> a, Vec<B, kOperand> b, Vec<f32, kResult> c)
// which is a b + c.
template <class A, class B, class Shape>
struct Mma : Shape {
  static_assert(sizeof(A) == 0,
                "the arch has no matrix instruction of this shape for these elements");
};

}  // namespace hk::arch
