// Multiplies a piece in integers; exact whenever float32 is.
#pragma once

#include "linear/integer_rows.hpp"
#include "linear/skinny_piece.hpp"

namespace hk::cpu::HK_ISA {

constexpr int kIntegerRows = 8;  // rows of a group; a sum takes half the registers of float32

// The slab of a row in a group; `first`: the slab of the group's first row.
HK_INLINE const IntegerSlab& row_of(const IntegerSlab* first, int row) {
  return *reinterpret_cast<const IntegerSlab*>(reinterpret_cast<const float*>(first) +
                                               row * kBlockK);
}

template <class W, int rows>
HK_INLINE void add_slab(const uint8_t* slab, const uint8_t* next, const IntegerSlab* x,
                        Totals<rows>& totals) {
  typename W::sums sums[rows];
  for (int r = 0; r < rows; ++r) sums[r] = W::splat_pair(row_of(x, r).start);
#pragma GCC unroll 4
  for (int64_t g = 0; g < kSlabK / kGroupK; ++g) {
    prefetch_group<W>(next, g);
    const uint8_t* codes = slab + W::scale_bytes + g * W::group_bytes;
    W::expand_integers(codes, [&](int64_t pair, const auto& w) HK_INLINED {
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        sums[r] += W::multiply_pairs(w, row_of(x, r).pairs[g * kGroupK / 2 + pair]);
        asm("" : "+v"(sums[r]));  // or all products are kept, to be added as a tree
      }
    });
  }
  prefetch_end<W>(next);
  vec scale[NV];
  column_scales<W>(slab, scale);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    vec sum[NV];
    W::widen_sums(sums[r], sum);
    for (int v = 0; v < NV; ++v) totals.at[r][v] += sum[v] * splat(row_of(x, r).scale) * scale[v];
  }
}

template <class W, int rows>
__attribute__((noinline)) void add_integers(const Piece& piece) {
  Totals<rows> totals(piece.totals);
  const uint8_t *slab = piece.slab, *next = piece.next;
  const float* block = piece.x;
  for (int64_t left = piece.slabs; left > 0; left -= kSlabsPerBlock, block += piece.x_block) {
    const auto* x = reinterpret_cast<const IntegerSlab*>(block);
    const int64_t slabs = left < kSlabsPerBlock ? left : kSlabsPerBlock;
    for (int64_t s = 0; s < slabs; ++s, slab += W::slab_bytes, next += W::slab_bytes)
      add_slab<W, rows>(slab, next, x + s, totals);
  }
  totals.store_to(piece.totals);
}

// Returns the function for a number of rows, at most kIntegerRows.
template <class W, int rows = kIntegerRows>
HK_INLINE AddPiece integers_for(int64_t count) {
  if constexpr (rows > 1)
    if (count < rows) return integers_for<W, rows - 1>(count);
  return add_integers<W, rows>;
}

}  // namespace hk::cpu::HK_ISA
