// Reductions over the rows of result blocks.
#pragma once

#include "map.hpp"

namespace hk {

// dst = the larger of src and a pair of its rows, in each half of the wave by itself.
HK_DEVICE void max_rows(ColumnVector& dst, ColumnVector src, Pair rows) {
  dst = arch::max3(src, rows[0], rows[1]);
}

// dst = f of the two halves' values, in both halves.
template <class F>
HK_DEVICE void reduce_halves(ColumnVector& dst, ColumnVector src, F&& f) {
  u32 lower = bit_cast<u32>(src), upper = lower;
  arch::swap_halves(lower, upper);
  dst = f(bit_cast<f32>(lower), bit_cast<f32>(upper));
}

// Whether it holds in any lane: a wave-uniform answer.
HK_DEVICE bool any(bool condition) { return __builtin_amdgcn_ballot_w64(condition) != 0; }

}  // namespace hk
