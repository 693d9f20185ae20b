// Where the rows of one request lie: the one place that knows packed tensors from paged caches.
//
// Rows are taken in groups of up to 16 that start at a multiple of 16. `find` starts to look up
// what the place of a group depends on, so that it can run a tile ahead of `place`.
#pragma once

#include "global_view.hpp"

namespace hk {

// `count` rows from row `row` of block `block`.
struct Place {
  u32 block, row, count;
};

struct PackedRows {
  static constexpr bool kBlocks = false, kSplit = false;
  i32 count;

  struct Found {};
  HK_DEVICE Found find(i32) const { return {}; }
  HK_DEVICE Place place(i32 first, i32 limit, Found) const {
    return {0, u32(first), clamp_scalar(count - first, limit)};
  }
};

// Row r is row r % block_size of block block_table[r / block_size].
struct PagedRows {
  static constexpr bool kBlocks = true, kSplit = false;
  i32 count;
  Constant<i32> block_table;
  u32 block_size;  // a multiple of 16
  u32 reciprocal;  // ceil(2^31 / (block_size / 16)): exact while rows * block_size < 2^38

  HK_DEVICE static u32 reciprocal_of(u32 block_size) {
    const u32 sixteens = block_size / 16;
    return ((1u << 31) + sixteens - 1) / sixteens;
  }
  HK_DEVICE u32 block_index(u32 row) const { return u32(wide_mul(row / 8, reciprocal) >> 32); }

  struct Found {
    u32 block, row;
  };
  // Rows past the last find the last one's block: what the table holds beyond may be anything.
  HK_DEVICE Found find(i32 row) const {
    const u32 index = block_index(clamp_scalar(row, max(count, 1) - 1));
    return {u32(block_table[index]), row - index * block_size};
  }
  HK_DEVICE Place place(i32 first, i32 limit, Found found) const {
    return {found.block, found.row, clamp_scalar(count - first, limit)};
  }
};

// The same of a cache that keeps 8 channels of a row together, or 8 rows of a channel.
struct SplitPagedRows : PagedRows {
  static constexpr bool kSplit = true;
};

// The rows of a tensor under a source: keys and values share places and differ in these.
template <class Source>
struct TensorRows {
  u64 base;               // row 0 of block 0
  u32 block_stride;       // bytes, where the source has blocks
  u32 row_stride;         // bytes
  u32 piece_stride = 16;  // bytes, where rows or channels are in pieces
  u32 extent = 0;         // then: bytes of 16 rows, from the first piece to the end of the last

  HK_DEVICE RowSpan span(Place at) const {
    u64 first = base;
    if constexpr (Source::kBlocks)
      first += wide_mul(at.block, block_stride) + at.row * row_stride;  // a block is below 4 GiB
    else
      first += wide_mul(at.row, row_stride);
    // The end of split rows is not that of their bytes: past it there is anything, but no fault.
    return {first, Source::kSplit ? (at.count > 0 ? extent : 0) : at.count * row_stride};
  }
};

}  // namespace hk
