// Rows of 6-bit codes in LDS, 64 codes of 16 rows after the other: [depth / 64, 768 bytes].
#pragma once

#include "hk/arch/gfx950_mx.hpp"
#include "hk/types/shared_reader.hpp"

namespace hk::swizzle {

// A lane takes 24 bytes of its row, the 32 codes of its half of the wave. The first 16 of them lie
// as in PlainRows: [2 halves, 16 rows, 16 bytes]. Behind them the other 8: [2 halves, 16 rows, 8
// bytes], and the halves exchanged in every second group of 16 rows. So a read of 8 bytes meets
// each of the 64 banks once, from the 32 lanes that are served together.
template <int RowBytes>
struct SixBitRows {
  static constexpr int kGroup = 16 * RowBytes, kPart = 768, kTails = 512;
  static constexpr int kRowsPerBlock = 32, kBlockStride = 2 * kGroup;
  static_assert(RowBytes % 48 == 0);

  // Two reads of a part: 16 bytes, and 8.
  template <class T, class Shape>
  struct RowReader : LaneAddresses<2> {
    static_assert(Shape::kRows == 32);

    HK_DEVICE static RowReader of(Lane lane, int first_row = 0) {
      RowReader reader;
      const int row = first_row + lane.col, in_group = row % 16, group = row / 16;
      reader.address[0] = group * kGroup + lane.half * 256 + in_group * 16;
      reader.address[1] = group * kGroup + kTails + (lane.half ^ group % 2) * 128 + in_group * 8;
      return reader;
    }
    template <class Tile>
    HK_DEVICE RowReader at(Tile tile) const {
      RowReader moved = *this;
      moved.move(tile.base);
      return moved;
    }
    template <int Block, int Part>
    HK_DEVICE void read(Fragment<T, Shape>& dst) const {
      arch::read_lds<Block * kBlockStride + Part * kPart>(dst.words, this->address[0]);
    }
    template <int Block, int Part>
    HK_DEVICE void read_rest(Vec<u32, 2>& dst) const {
      arch::read_lds<Block * kBlockStride + Part * kPart>(dst, this->address[1]);
    }
  };
};

}  // namespace hk::swizzle
