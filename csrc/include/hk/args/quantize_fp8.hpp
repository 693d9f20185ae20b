// The one argument of the quantize_fp8 kernels, passed by value: plain C++ for host and device.
//
// Rows of x are contiguous and x_row elements apart, at least k; pointers are aligned to their
// elements. Memory is accessed by 16 bytes of x if three things hold. Rows of x start at multiples
// of 16 bytes; rows of codes start at multiples of as many codes as 16 bytes of x have elements; k
// is a multiple of that number. Else memory is accessed by elements. Nothing is read or written but
// the elements of the tensors.
//
// A scale is that of (row >> row_shift, column >> column_shift). Kernels that are given scales load
// one for 16 bytes of x, so a column_shift below 3 (of 32-bit x: 2) would be wrong. The kernels
// that compute scales do so of one row, or of one row and 128 columns, and do not look at the
// shifts. Scales of rows are contiguous; the first of all and the last are fewer than 2^29 elements
// apart.
#pragma once

#include "../types/scalar.hpp"
#include "workgroups.hpp"

namespace hk {

struct QuantizeFp8Args {
  const void* x;  // [m, k]
  void* codes;    // e4m3fn [m, k], contiguous
  void* scales;   // f32: written or given
  i64 x_row;
  i32 m, k;
  i32 row_shift, column_shift;  // of given scales; below 32; see above for the least
  i32 scale_row, scale_column;  // elements from a row's or a column's scales to the next ones
};

// `whole_rows`: a workgroup goes through all columns of its row.
constexpr Workgroups workgroups(const QuantizeFp8Args& args, TileSize tile, bool whole_rows) {
  return {args.m, whole_rows ? 1 : tiles(args.k, tile.columns)};
}

}  // namespace hk
