// Places of the bytes of a shared tile, and the lanes that copy and read them. A swizzle states
//   offset(row, chunk)   the LDS byte of 16 bytes of a row: to write them, to read them
//   kPeriod, kMixedChunks   as shared_reader.hpp wants them
//   kBlockStride, kRowsPerBlock, kBlocksPer16, source   what copy instructions move, and from where
//   RowReader<T, Shape>, ColumnReader<T, Shape>
#pragma once

#include "shared_reader.hpp"

namespace hk {

namespace swizzle {

// Free of bank conflicts for ds_read_b128 along rows; for transposed reads down columns, whose
// phases are not published, in any phase within one half of the wave.
//
// Blocks lie 64 bytes further apart than they are long, and hold rows that are far apart: the low
// bits of a row select the block (d=256: 8 blocks of 2 rows; d=128: 4 of 4; d=64: 2 of 8). So a
// transposed read, which reads 4 neighbouring rows side by side, finds them in 4 different quarters
// of the 64 banks.
template <int RowBytes>
struct SpreadRows : PeriodicReaders<SpreadRows<RowBytes>> {
  static_assert(RowBytes == 128 || RowBytes == 256 || RowBytes == 512);
  static_assert(arch::kCopyBytes == 16 && arch::kLdsBanks == 64,
                "SpreadRows is filled by copies of 16 bytes a lane, and read from 64 banks");
  static constexpr int kPeriod = 16, kMixedChunks = 4;
  static constexpr int kBlockStride = kCopyBlock + 64;
  static constexpr int kRowsPerBlock = kCopyBlock / RowBytes;
  static constexpr int kBlocksPer16 = 16 / kRowsPerBlock;  // 16 rows take this many blocks

  HK_DEVICE static constexpr int mix(int row) { return (row / 4 % 2) * 2 + row / 8 % 2; }
  HK_DEVICE static constexpr int offset(int row, int chunk) {
    if constexpr (RowBytes == 512)
      return row / 16 * kBlocksPer16 * kBlockStride + row % 8 * kBlockStride + row / 8 % 2 * 512 +
             (chunk ^ mix(row)) * 16;
    return row / 16 * kBlocksPer16 * kBlockStride + row % kBlocksPer16 * kBlockStride +
           mix(row) * 256 + row % 4 / kBlocksPer16 * RowBytes + (chunk ^ mix(row)) * 16;
  }

  // The two chunks that a lane fills with 16 codes (WideningCopy); their order depends on the row.
  static constexpr int kSecond = 16, kPartBytes = 128;
  static constexpr bool kFlips = true, kDown = false;
  HK_DEVICE static WidePlace wide_place(int lane, int part, RowStrides strides) {
    const int row = lane % 16, piece = 4 * part + lane / 16;
    return {u32(row), row * strides.row + piece * strides.piece, u32(offset(row, 2 * piece))};
  }

  // The chunk that lane `lane` of the copy of block `block` (within 16 rows) has to fetch.
  HK_DEVICE static constexpr int copied_row(int block, int lane) {
    if constexpr (RowBytes == 512) return lane / 32 * 8 + block;
    const int mixed = lane / 16;
    return (mixed / 2 + mixed % 2 * 2) * 4 + lane % 16 * 16 / RowBytes * kBlocksPer16 + block;
  }
  HK_DEVICE static constexpr int copied_byte(int block, int lane) {
    if constexpr (RowBytes == 512) return (lane % 32 ^ mix(copied_row(block, lane))) * 16;
    return (lane % (RowBytes / 16) ^ lane / 16) * 16;
  }
};

}  // namespace swizzle
}  // namespace hk
