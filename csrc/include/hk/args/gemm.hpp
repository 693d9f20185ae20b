// The one argument of the gemm kernels, passed by value: plain C++ for host and device.
//
// Rows of a and c are contiguous, start at multiples of 16 bytes, and are less than 2^23 bytes
// apart. Rows of a are allocated up to the 16 bytes that hold their end; what lies there past k
// does not matter. Nothing but c's m x n elements is written, besides the workspace.
//
// b is packed (hk_backend/devices/hip/weight_layout.py) in groups of 16 rows, and a group as 16
// bytes of each row after the other: [n / 16, k bytes / 16, 16 rows, 16 bytes]. Zeros fill it up to
// multiples of 16 rows and of 128 bytes of a row. FP8 for 16-bit activations: 32 neighbours of a
// row are [2, 2, 8], with the middle axes exchanged.
//
// MX formats: a and b are both packed (hk_backend/devices/hip/mx_layout.py), with zeros up to
// multiples of 16 rows and of 256 elements, and k is a multiple of 32. Codes of 4 and 8 bits lie as
// above. Of 6 bits, 64 of a row take 48 bytes, and 16 rows of them [2 halves, 16 rows, 16 bytes],
// then [2 halves, 16 rows, 8 bytes], a half being 32 codes. The second has its halves exchanged in
// every other group of rows. a_scale and b_block_scale have e8m0 codes: [rows / 32, k / 256, 2
// halves, 32 rows, 4], rounded up. The code of 32 neighbours lies at their half of 64, and at the
// place of these 64 in 256. What lies in rows that do not exist does not matter. a_row and
// a_scale_row are not read.
//
// Kernels for scales of blocks multiply the products of each 128 of the depth by a_scale and
// b_block_scale, and the sum of them by b_scale. The others read neither b_block_scale nor
// a_scale_step.
#pragma once

#include "../types/scalar.hpp"
#include "workgroups.hpp"

namespace hk {

// Element types by number, of c and of the bias.
enum GemmType : i32 { kGemmBf16, kGemmF16, kGemmF32 };

inline constexpr i32 kScaleBlock = 128;

struct GemmArgs {
  const void* a;             // [m, k]
  const void* b;             // [n, k], packed
  void* c;                   // [m, n] = a b^T, times the scales, plus the bias
  const f32* a_scale;        // of each row of a; null: 1; MX formats: codes
  const f32* b_scale;        // of each row of b; null: 1
  const f32* b_block_scale;  // [n / 128, k / 128], rounded up: of blocks of b; null: 1; MX: codes
  const void* bias;          // [n], allocated up to the 4 bytes that hold its end; or null
  // The workspace, if splits > 1: room for the sums of every tile and split, and a zero for every
  // tile, which is zero again afterwards.
  f32* partial;
  u32* arrived;
  i64 a_row, c_row;  // elements from one row to the next
  i32 m, n, k;
  i32 splits;  // workgroups that share the depth of a tile: any number, 1 for the largest tiles
  i32 c_type, bias_type;
  // Elements of a_scale from a row's to the next one's, 0 where all rows share one; from those of
  // 128 of the depth to the next 128's. From the first to the last: fewer than 2^29.
  i32 a_scale_row, a_scale_step;
};

constexpr Workgroups workgroups(const GemmArgs& args, TileSize tile) {
  return {tiles(args.m, tile.rows) * tiles(args.n, tile.columns) * args.splits};
}

}  // namespace hk
