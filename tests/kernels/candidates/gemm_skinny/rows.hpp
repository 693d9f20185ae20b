// A few rows of activations as the matrix unit takes them: as the sparse operand, or a dense one.
//
// Lanes 16 g to 16 g + 15 hold 16 rows each, and of a step's 128 bytes
//   sparse   bytes 32 g to 32 g + 31, for 8 rows of activations: rows r and r + 8 of the operand
//            have the first and the last two of every four elements. The lanes of both load 16
//            neighbouring bytes each, and exchange half of them
//   dense    16 bytes of each half of the step, at 16 g, for 16 rows
#pragma once

#include "elements.hpp"

namespace hk::gemm_skinny {

// `theirs` of the lane with the other half of the row, in the upper or the lower 8 lanes of 16;
// `mine` in the others.
template <bool Upper>
HK_DEVICE u32 exchange(u32 mine, u32 theirs) {
  constexpr int kRotateBy8 = 0x128, kBanks = Upper ? 0xc : 0x3;
  return __builtin_amdgcn_update_dpp(mine, theirs, kRotateBy8, 0xf, kBanks, false);
}

template <class Elements_>
struct Sparse {
  using Elements = Elements_;
  static constexpr int kRows = arch::kSparseRows / 2, kLoads = 1;

  i32 row, bytes[kLoads];  // what the lane loads of a step
  u32 indices;

  HK_DEVICE explicit Sparse(Lane lane)
      : row(lane.id % kRows), bytes{lane.id / 16 * 32 + lane.id % 16 / kRows * 16},
        indices(lane.id % 16 < kRows ? arch::kFirstPairs : arch::kLastPairs) {}

  HK_DEVICE Words operand(const Words (&loaded)[kLoads]) const {
    const Words pairs = Elements::pairs(loaded[0]);
    return {exchange<true>(pairs[0], pairs[1]), exchange<true>(pairs[2], pairs[3]),
            exchange<false>(pairs[1], pairs[0]), exchange<false>(pairs[3], pairs[2])};
  }

  HK_DEVICE void multiply(Sums& sums, Words a, const Line& w) const {
    sums = Elements::sparse(a, w, sums, indices);
  }
};

template <class Elements_>
struct Dense {
  using Elements = Elements_;
  static constexpr int kRows = 16, kLoads = 2;

  i32 row, bytes[kLoads];

  HK_DEVICE explicit Dense(Lane lane)
      : row(lane.id % kRows), bytes{lane.id / 16 * 16, lane.id / 16 * 16 + kStepBytes / 2} {}

  HK_DEVICE Line operand(const Words (&loaded)[kLoads]) const { return {{loaded[0], loaded[1]}}; }

  HK_DEVICE void multiply(Sums& sums, const Line& a, const Line& w) const {
    sums = Elements::dense(a, w, sums);
  }
};

}  // namespace hk::gemm_skinny
