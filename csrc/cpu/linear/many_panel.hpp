// What the multiply of many rows does with a panel's block along K, in float32, in bfloat16 or in
// integers: it is expanded once, and multiplied by one register tile of rows after another.
//
// A panel type says how many slabs a block has, how many bytes it takes expanded (`expand` returns
// where it is: in `out`, or the weight itself), how many rows a tile has, and of which number of
// rows a tile's sums are a multiple in memory.
#pragma once

#include "formats/weight_format.hpp"

namespace hk::cpu::HK_ISA {

// Asks for what is expanded next, a few cache lines per slab multiplied: a phase that only
// multiplies would leave the memory idle.
struct Prefetch {
  const uint8_t *at, *end;
  int64_t bytes_per_slab;
  bool soon;  // read within a few slabs: into the first cache

  HK_INLINE void step() {
    const uint8_t* until = at + bytes_per_slab < end ? at + bytes_per_slab : end;
    for (; at < until; at += 64)
      if (soon)
        __builtin_prefetch(at, 0, 3);
      else
        __builtin_prefetch(at, 0, 2);
  }
};

// A register tile: some rows times an expanded block of `slabs` slabs, added to `sums`.
struct Tile {
  const PreparedRows& prepared;
  int64_t row, rows;  // of the prepared ones
  int64_t slab, slabs;
  const void* panel;  // as expanded
  float* sums;        // [rows][NR]
  Prefetch& next;
};

}  // namespace hk::cpu::HK_ISA
