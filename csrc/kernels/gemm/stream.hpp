// The tiles of a matrix on their way from memory to LDS, as one wave sees them.
#pragma once

#include "shape.hpp"

namespace hk::gemm {

// What a wave copies of a matrix: a tile's columns of the same rows at each step, step after step.
template <class Tile, int Waves>
struct DepthStream {
  using Share = TileCopy<Tile, Waves>;
  static constexpr u32 kStepBytes = Tile::kCols * sizeof(typename Tile::Element);
  static constexpr int kChunk = 16 / sizeof(typename Tile::Element);

  Share share;
  RowSpan span;  // from the next step's first column to the end of the rows

  // Of the matrix [count, depth], rows from `first` on. The last row ends with the 16 bytes that
  // hold its end: the rest of it may not be there.
  HK_DEVICE DepthStream(const TensorRows<PackedRows>& rows, i32 count, i32 depth, i32 first,
                        i32 wave, Lane lane)
      : share(wave, lane, rows.row_stride),
        span(rows.span(PackedRows{depth == 0 ? 0 : count}.place(first + share.first_row,
                                                                Share::kRowsSpanned, {}))) {
    const u32 past_end = rows.row_stride - ceil_div(depth, kChunk) * 16;
    span.bytes -= clamp_scalar(past_end, span.bytes);
  }

  // Past the last column it goes on: what is copied then is not used.
  HK_DEVICE void copy_next(Tile dst) {
    copy(dst, span, share);
    span.base += kStepBytes;
    span.bytes -= clamp_scalar(span.bytes, kStepBytes);
    pin_scalar(span.base, span.bytes);
  }
};

}  // namespace hk::gemm
