// Tiles of caches that keep 16 bytes of a row or a column together: 8 channels of a token, or 8
// tokens of a channel. They lie in LDS as in such a cache, 16 tokens after 16 tokens, so that what
// one instruction copies is contiguous on both sides, and reads along what is kept together are
// free of bank conflicts.
#pragma once

#include "shared_reader.hpp"

namespace hk::swizzle {

// Rows in pieces, [pieces, 16 rows, 16 bytes]. Exchanged: the middle quads of the rows, so that, as
// keys, a lane's 8 results of 16 rows are neighbours.
template <int RowBytes, bool Exchanged>
struct RowsInPieces : PeriodicReaders<RowsInPieces<RowBytes, Exchanged>> {
  static constexpr int kPeriod = 16, kMixedChunks = 1;
  static constexpr int kBlockStride = kCopyBlock;
  static constexpr int kRowsPerBlock = kCopyBlock / RowBytes, kBlocksPer16 = 16 / kRowsPerBlock;

  HK_DEVICE static constexpr int offset(int row, int chunk) {
    return row / 16 * 16 * RowBytes + chunk * 256 + row % 16 * 16;
  }
  HK_DEVICE static constexpr int stored_row(int place) {
    return Exchanged ? (place & ~12) | (place & 4) << 1 | (place & 8) >> 1 : place;
  }
  HK_DEVICE static u32 source(int block, int lane, RowStrides strides) {
    return stored_row(lane % 16) * strides.row + (4 * block + lane / 16) * strides.piece;
  }
  HK_DEVICE static int row_byte(int block, int lane) { return (4 * block + lane / 16) * 16; }

  static constexpr int kSecond = 256, kPartBytes = 2048;
  static constexpr bool kFlips = false, kDown = false;
  HK_DEVICE static WidePlace wide_place(int lane, int part, RowStrides strides) {
    const int row = stored_row(lane % 16), piece = 4 * part + lane / 16;
    return {u32(row), row * strides.row + piece * strides.piece, u32(offset(lane % 16, 2 * piece))};
  }
};
template <int RowBytes>
using SplitRows = RowsInPieces<RowBytes, true>;
template <int RowBytes>
using PlainRows = RowsInPieces<RowBytes, false>;

// Columns in pieces of 8 rows: as the operand of a matrix instruction, fragment after fragment.
template <int RowBytes>
struct SplitColumns {
  static constexpr int kPeriod = 16;
  static constexpr int kBlockStride = kCopyBlock;
  static constexpr int kRowsPerBlock = kCopyBlock / RowBytes, kBlocksPer16 = 16 / kRowsPerBlock;

  // 32 columns, 8 of 16 rows in each half of the wave.
  HK_DEVICE static u32 source(int block, int lane, RowStrides strides) {
    return (32 * block + lane % 32) * strides.piece + lane / 32 * 8 * strides.row;
  }
  HK_DEVICE static int row_byte(int block, int lane) {
    return (32 * block + lane % 32) * (RowBytes / (32 * kBlocksPer16));
  }

  static constexpr int kSecond = 512, kPartBytes = 2048;
  static constexpr bool kFlips = false, kDown = true;
  HK_DEVICE static WidePlace wide_place(int lane, int part, RowStrides strides) {
    const int column = 64 * part + lane;
    return {0, column * strides.piece, u32(column / 32 * kCopyBlock + column % 32 * 16)};
  }

  template <class T, class Shape>
  struct ColumnReader : LaneAddresses<1> {
    static_assert(sizeof(T) == 2 && Shape::kRows == 32 && Shape::kOperand == 8);

    HK_DEVICE static ColumnReader of(Lane lane, int first_row = 0) {
      ColumnReader reader;
      reader.address[0] = first_row * RowBytes + lane.id * 16;
      return reader;
    }
    template <class Tile>
    HK_DEVICE ColumnReader at(Tile tile) const {
      ColumnReader moved = *this;
      moved.move(tile.base);
      return moved;
    }
    template <int Block, int Step>
    HK_DEVICE void read(Fragment<T, Shape>& dst) const {
      constexpr int kOffset = (Step * kBlocksPer16 + Block) * kCopyBlock;
      arch::read_lds<kOffset>(dst.words, this->address[0]);
    }
  };
};

}  // namespace hk::swizzle
