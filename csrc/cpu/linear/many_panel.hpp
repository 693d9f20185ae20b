// Interface of panels in the multiply of many rows, in float32, bfloat16 or integers. A panel's
// block along K is expanded once, and multiplied by one register tile of rows after another.
//
// A panel type defines the number of slabs in a block (`slabs`), the bytes of an expanded block
// (`bytes`), and the rows of a tile (`tile_rows`). Memory for sums has a multiple of `row_unit`
// rows. `expand` returns the address of the expanded block: `out`, or the weight itself.
#pragma once

#include "formats/weight_format.hpp"

namespace hk::cpu::HK_ISA {

// Prefetches the codes that are expanded next, a few cache lines for each multiplied slab.
// Otherwise memory would be idle while a phase only multiplies.
struct Prefetch {
  const uint8_t *at, *end;
  int64_t bytes_per_slab;
  bool soon;  // whether it is read within a few slabs: into the first-level cache

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
  int64_t row, rows;  // among the prepared rows
  int64_t slab, slabs;
  const void* panel;  // the expanded block
  float* sums;        // [rows][NR]
  Prefetch& next;
};

}  // namespace hk::cpu::HK_ISA
