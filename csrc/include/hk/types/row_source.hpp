// The place of the rows of one request. Nothing else tells packed tensors from paged caches.
//
// Rows are taken in groups of up to 16 that start at a multiple of 16. `find` starts to look up
// what the place of a group depends on, so that it can run a tile ahead of `place`.
//
// A source states
//   kName      what the catalogue knows it by
//   kBlocks    whether there is a cache, and a block table
//   kSplit     whether it keeps 16 bytes of a row or a column together
//   kScalar    whether a look-up is a scalar load, which lands with all LDS reads or not at all
//   kBounded   whether what is copied past the last row are zeros
//   kByLane    whether each lane finds its own rows
//   kWidens    whether FP8 codes are stored, `Code`, and widened on their way
#pragma once

#include "global_view.hpp"

namespace hk {

// `count` rows from row `row` of block `block`.
struct Place {
  u32 block, row, count;
};

struct PackedRows {
  static constexpr char kName[16] = "packed";
  static constexpr bool kBlocks = false, kSplit = false, kScalar = false, kBounded = true;
  static constexpr bool kByLane = false, kWidens = false;
  i32 count;

  struct Found {};
  HK_DEVICE Found find(i32) const { return {}; }
  HK_DEVICE Place place(i32 first, i32 limit, Found) const {
    return {0, u32(first), clamp_scalar(count - first, limit)};
  }
};

// Row r is row r % block_size of block block_table[r / block_size].
struct PagedRows {
  static constexpr char kName[16] = "paged";
  static constexpr bool kBlocks = true, kSplit = false, kScalar = true, kBounded = true;
  static constexpr bool kByLane = false, kWidens = false;
  i32 count;
  Constant<i32> block_table;
  u32 block_size;  // a multiple of 16
  u32 reciprocal;  // ceil(2^31 / (block_size / 16)): exact while rows * block_size < 2^38

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
  static constexpr char kName[16] = "split";
  static constexpr bool kSplit = true, kBounded = false;
};

// Rows that each lane finds, and looks up in the vector memory: one, or two neighbours of which the
// first is even. A row of the cache is a number here: those of a block follow each other, and
// blocks are `block_rows` apart. Past the last row there is row 0, or another one.
struct LaneRows {
  static constexpr bool kBlocks = true, kSplit = false, kScalar = false, kBounded = false;
  static constexpr bool kByLane = true, kWidens = false;

  i32 count;
  u64 block_table;

 protected:
  // The table from block `first` of `blocks` on.
  HK_DEVICE BoundedView table(i32 first, i32 blocks) const {
    return {block_table + u32(first) * sizeof(i32), clamp_scalar(blocks - first, blocks) * 4};
  }
};

// Blocks of one token.
struct TokenRows : LaneRows {
  static constexpr char kName[16] = "tokens";
  HK_DEVICE static constexpr int look_ups(int) { return 1; }  // loads of `find`

  template <int Rows>
  struct Found {
    Vec<u32, Rows> block;
  };
  // Starts to look up `Rows` rows from `first` + lane_row on, for `rows`.
  template <int Rows>
  HK_DEVICE Found<Rows> find(i32 first, u32 lane_row) const {
    const BoundedView blocks = table(first, count);
    const u32 byte = lane_row * u32(sizeof(i32));
    if constexpr (Rows == 1)
      return {{load_word(blocks, byte)}};
    else
      return {load_words<Rows>(blocks, byte)};
  }
  template <int Rows>
  HK_DEVICE Vec<u32, Rows> rows(const Found<Rows>& found) const {
    return found.block;
  }
};

// Blocks of any number of tokens, which costs two divisions of a row by a known number in each
// step.
struct AnyPagedRows : LaneRows {
  static constexpr char kName[16] = "any_pages";
  HK_DEVICE static constexpr int look_ups(int rows) { return rows; }

  u32 block_size, block_rows;
  u32 reciprocal;   // floor((2^32 - 1) / block_size)
  i32 block_count;  // that hold a row

  template <int Rows>
  struct Found {
    Vec<u32, Rows> block, rest;
  };
  template <int Rows>
  HK_DEVICE Found<Rows> find(i32 first, u32 lane_row) const {
    const auto [block, rest] = divide(first);
    const BoundedView blocks = table(block, block_count);
    Found<Rows> found;
    static_for<0, Rows>([&](auto i) {
      const Divided row = divide(rest + lane_row + i.value);
      found.block[i.value] = load_word(blocks, row.quotient * u32(sizeof(i32)));
      found.rest[i.value] = row.rest;
    });
    return found;
  }
  template <int Rows>
  HK_DEVICE Vec<u32, Rows> rows(const Found<Rows>& found) const {
    return found.block * block_rows + found.rest;
  }

  struct Divided {
    u32 quotient, rest;
  };
  // Divides by the block size.
  HK_DEVICE Divided divide(u32 row) const {
    const u32 quotient = u32(u64(row) * reciprocal >> 32);  // or one less than it is
    const u32 rest = row - quotient * block_size;
    return rest < block_size ? Divided{quotient, rest} : Divided{quotient + 1, rest - block_size};
  }
};

// The same rows of a cache of FP8 codes.
template <class Rows_>
struct Widened : Rows_ {
  using Rows = Rows_;
  using Code = E4m3;
  static constexpr bool kWidens = true;
};
using PagedCodes = Widened<PagedRows>;
using SplitPagedCodes = Widened<SplitPagedRows>;
using TokenCodes = Widened<TokenRows>;
using AnyPagedCodes = Widened<AnyPagedRows>;

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
