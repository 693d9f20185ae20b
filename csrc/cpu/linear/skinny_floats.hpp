// Multiplies a piece in float32.
//
// A register is expanded and multiplied by all rows at once. A sum waits four clocks for itself,
// while a core starts two products per clock. One or two rows therefore have two chains of sums
// that take turns along K. More chains would need the registers with the constants of the
// expansion.
#pragma once

#include "formats/weight_format.hpp"
#include "linear/skinny_piece.hpp"

namespace hk::cpu::HK_ISA {

template <int rows>
struct Sums {
  static constexpr int chains = rows <= 2 ? 2 : 1;
  vec at[chains][rows][NV];

  HK_INLINE void zero() {
    for (int c = 0; c < chains; ++c)
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r)
        for (int v = 0; v < NV; ++v) at[c][r][v] = vec{};
  }
  // Adds products with the rows' elements x at k.
  HK_INLINE void add(int64_t k, const float* x, const vec (&w)[NV]) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v) at[k % chains][r][v] += splat(x[r * kBlockK]) * w[v];
  }
  HK_INLINE vec sum(int r, int v) const {
    if constexpr (chains == 1) return at[0][r][v];
    return at[0][r][v] + at[1][r][v];
  }
  // Adds the sums to totals. Multiplies by the factor first: times a large scale it might overflow.
  HK_INLINE void move_to(Totals<rows>& totals, float factor, const vec (&scale)[NV]) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v) totals.at[r][v] += sum(r, v) * splat(factor) * scale[v];
    zero();
  }
};

// Source of the weight for a group of rows. codes_kept: codes, which the group leaves expanded in a
// strip for the next groups.
enum class Source { codes, codes_kept, strip };

// Calls f(k, w) for the elements of a slab.
template <class W, Source source, class F>
HK_INLINE void expand_slab(const uint8_t* slab, const uint8_t* next, float* strip, F f) {
  if constexpr (source == Source::strip) {
#pragma GCC unroll 8
    for (int64_t k = 0; k < kSlabK; ++k) {
      vec w[NV];
      for (int v = 0; v < NV; ++v) w[v] = load(strip + k * NR + v * VL);
      f(k, w);
    }
  } else {
    for (int64_t g = 0; g < kSlabK / kGroupK; ++g) {
      prefetch_group<W>(next, g);
      const uint8_t* codes = slab + W::scale_bytes + g * W::group_bytes;
      W::expand_group(codes, [&](int64_t i, const vec(&w)[NV]) HK_INLINED {
        f(g * kGroupK + i, w);
        if constexpr (source == Source::codes_kept)
          for (int v = 0; v < NV; ++v) store(strip + (g * kGroupK + i) * NR + v * VL, w[v]);
      });
    }
    prefetch_end<W>(next);
  }
}

// One function for each number of rows: in a common function they would compete for registers.
template <class W, bool block_scaled, Source source, int rows>
__attribute__((noinline)) void add_floats(const Piece& piece) {
  Totals<rows> totals(piece.totals);
  Sums<rows> sums;
  sums.zero();
  vec scale[NV];
  for (vec& s : scale) s = splat(1.0f);
  const uint8_t *slab = piece.slab, *next = piece.next;
  const float* x = piece.x;
  for (int64_t done = 0; done < piece.slabs; done += kSlabsPerBlock, x += piece.x_block) {
    const int64_t left = piece.slabs - done, slabs = left < kSlabsPerBlock ? left : kSlabsPerBlock;
    float* strip = piece.strip;
    for (int64_t s = 0; s < slabs;
         ++s, slab += W::slab_bytes, next += W::slab_bytes, strip += kSlabK * NR) {
      expand_slab<W, source>(slab, next, strip, [&](int64_t k, const vec(&w)[NV]) HK_INLINED {
        sums.add(k, x + s * kSlabK + k, w);
      });
      if constexpr (W::mx) {
        column_scales<W>(slab, scale);
        sums.move_to(totals, W::factor, scale);
      }
    }
    if constexpr (block_scaled)
      for (vec& s : scale) s = splat(piece.block_scales[done / kSlabsPerBlock]);
    if constexpr (!W::mx) sums.move_to(totals, W::factor, scale);
  }
  totals.store_to(piece.totals);
}

// Returns the function for a number of rows, at most kGroupRows. If there are several groups, they
// are cut evenly, and none has fewer than half of that.
template <class W, bool block_scaled, Source source, int rows = kGroupRows>
HK_INLINE AddPiece floats_for(int64_t count) {
  constexpr int fewest = source == Source::codes ? 1 : kGroupRows / 2;
  if constexpr (rows > fewest)
    if (count < rows) return floats_for<W, block_scaled, source, rows - 1>(count);
  return add_floats<W, block_scaled, source, rows>;
}

}  // namespace hk::cpu::HK_ISA
