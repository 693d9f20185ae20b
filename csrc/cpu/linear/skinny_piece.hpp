// A piece: the unit of work in the multiply of a few rows, in float32 or in integers.
#pragma once

#include "common/micro_gemm.hpp"
#include "linear/linear_args.hpp"

namespace hk::cpu::HK_ISA {

constexpr int64_t kSlabsPerBlock = kBlockK / kSlabK;

// Some slabs of a panel, from the beginning of a block of K, for a group of rows.
struct Piece {
  const uint8_t* slab;
  int64_t slabs;
  const uint8_t* next;        // the slabs that are read after these
  const float* x;             // the group's first row, at the first block
  int64_t x_block;            // elements from a block to the next
  const float* block_scales;  // one per block, or null
  float* strip;               // [kBlockK][NR]: one block expanded, if there are other groups
  float* totals;              // [rows][NR]: results are added here
};
using AddPiece = void (*)(const Piece&);

template <int rows>
struct Totals {
  vec at[rows][NV];

  HK_INLINE explicit Totals(const float* from) {
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v) at[r][v] = load(from + r * NR + v * VL);
  }
  HK_INLINE void store_to(float* to) const {
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v) store(to + r * NR + v * VL, at[r][v]);
  }
};

// Prefetches the cache lines of a group of a slab, while the slab before is multiplied.
template <class W>
HK_INLINE void prefetch_group(const uint8_t* slab, int64_t group) {
  for (int64_t line = 0; line < W::group_bytes; line += 64)
    __builtin_prefetch(slab + group * W::group_bytes + line);
}
// Prefetches the end of a slab, which scales make longer than its groups.
template <class W>
HK_INLINE void prefetch_end(const uint8_t* slab) {
  if (W::mx) __builtin_prefetch(slab + W::slab_bytes - 1);
}

}  // namespace hk::cpu::HK_ISA
