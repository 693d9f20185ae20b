// Tiles in LDS: where the 16-byte chunk (row, chunk) lies.
#pragma once

#include "../arch/arch.hpp"

namespace hk {

// One copy instruction moves a block: 64 lanes x 16 bytes, consecutive in LDS, from any addresses.
inline constexpr int kCopyBlock = arch::kLanes * arch::kCopyBytes;

// The LDS byte address of a shared array.
HK_DEVICE u32 shared_address(const void* shared) {
  return u32(u64((const __attribute__((address_space(3))) void*)shared));
}

namespace swizzle {

// Free of bank conflicts for ds_read_b128 along rows; for transposed reads down columns, whose
// phases are not published, in any phase within one half of the wave.
//
// Blocks lie 64 bytes further apart than they are long, and hold rows that are far apart: the
// low bits of a row select the block (d=128: 4 blocks of 4 rows; d=64: 2 of 8), so that 4
// neighbouring rows, read side by side by a transposed read, fall into 4 different quarters of
// the 64 banks. The next two bits of the row, swapped, are XORed into the chunk, so that the 16
// rows of a ds_read_b128 phase fall into 16 different slots. Only two bits of a chunk are mixed:
// all others are offsets in the instruction, and a lane needs two addresses for a whole tile.
template <int RowBytes>
struct SpreadRows {
  static_assert(RowBytes == 128 || RowBytes == 256);
  static_assert(arch::kCopyBytes == 16 && arch::kLdsBanks == 64,
                "SpreadRows is filled by copies of 16 bytes a lane, and read from 64 banks");
  static constexpr int kBlockStride = kCopyBlock + 64;
  static constexpr int kRowsPerBlock = kCopyBlock / RowBytes;
  static constexpr int kBlocksPer16 = 16 / kRowsPerBlock;  // 16 rows take this many blocks
  static constexpr int kMixedChunks = 4;                   // chunks of an aligned four are permuted

  HK_DEVICE static constexpr int mix(int row) { return (row / 4 % 2) * 2 + row / 8 % 2; }
  HK_DEVICE static constexpr int offset(int row, int chunk) {
    return row / 16 * kBlocksPer16 * kBlockStride + row % kBlocksPer16 * kBlockStride +
           mix(row) * 256 + row % 4 / kBlocksPer16 * RowBytes + (chunk ^ mix(row)) * 16;
  }

  // What lane `lane` of the copy of block `block` (within 16 rows) has to fetch.
  HK_DEVICE static constexpr int copied_row(int block, int lane) {
    const int mixed = lane / 16;
    return (mixed / 2 + mixed % 2 * 2) * 4 + lane % 16 * 16 / RowBytes * kBlocksPer16 + block;
  }
  HK_DEVICE static constexpr int copied_chunk(int lane) {
    return lane % (RowBytes / 16) ^ lane / 16;
  }
};

}  // namespace swizzle

template <class T, int Rows, int Cols, class Swizzle = swizzle::SpreadRows<Cols * int(sizeof(T))>>
struct SharedTile {
  using Element = T;
  using Layout = Swizzle;
  static constexpr int kRows = Rows, kCols = Cols;
  static constexpr int kBlocks = Rows / Swizzle::kRowsPerBlock;
  static constexpr int kBytes = kBlocks * Swizzle::kBlockStride;
  static_assert(Rows % 16 == 0);

  u32 base;  // byte address in LDS, wave-uniform
};

}  // namespace hk
