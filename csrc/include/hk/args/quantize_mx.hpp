// The one argument of the quantize_mx kernels, passed by value: plain C++ for host and device.
//
// Rows of x are contiguous, x_row elements apart, and start at multiples of 16 bytes; k is a
// multiple of 32. k is below 2^24 and x_row below 2^25. Nothing of x is read but its elements. Codes
// start at a multiple of 16 bytes.
//
// Rows (packed is 0): codes [m, k * bits / 8] and scales [m, k / 32], both contiguous.
//
// Packed, as the gemm kernels take them: the layout of hk_backend/devices/hip/mx_layout.py. Zeros
// fill the codes up to multiples of 16 rows, the scales up to multiples of 32 rows, and both up to
// multiples of 256 elements of a row.
#pragma once

#include "../types/scalar.hpp"
#include "workgroups.hpp"

namespace hk {

struct QuantizeMxArgs {
  const void* x;  // [m, k]
  void* codes;
  void* scales;  // e8m0, a byte each
  i64 x_row;
  i32 m, k;
  i32 rotation;  // neighbours that are rotated together first: 32, 64 or 128, divides k; 0: none
  i32 round_scale_even;  // whether the largest magnitude is rounded to an element's digits first
  i32 packed;
};

// A workgroup's tile is so many times wider, and flatter, if the result stays in rows: its scales
// then fill whole sectors of memory.
inline constexpr i32 kWider = 8;

constexpr Workgroups workgroups(const QuantizeMxArgs& args, TileSize tile) {
  const i32 times = args.packed ? 1 : kWider;
  return {tiles(args.m, tile.rows / times), tiles(args.k, i64(tile.columns) * times)};
}

}  // namespace hk
