// Rows in LDS of which a half of the wave reads 32 neighbours: MX codes that are widened, and the
// activations beside them.
#pragma once

#include "hk/types/shared_reader.hpp"

namespace hk::swizzle {

// A layout whose lanes read `Reads` pieces side by side.
template <class Layout_, int Reads>
struct HalfRows : Layout_ {
  using Layout = Layout_;
  static constexpr int kAddresses = Layout::kMixedChunks, kPartChunks = 2 * Reads;
  static_assert(Reads % kAddresses == 0);

  template <class T, class Shape>
  struct RowReader : LaneAddresses<kAddresses> {
    static_assert(Shape::kRows == 32);

    HK_DEVICE static RowReader of(Lane lane, int first_row = 0) {
      RowReader reader;
      static_for<0, kAddresses>([&](auto i) {
        reader.address[i] = Layout::offset(first_row + lane.col, Reads * lane.half + i);
      });
      return reader;
    }
    template <class Tile>
    HK_DEVICE RowReader at(Tile tile) const {
      RowReader moved = *this;
      moved.move(tile.base);
      return moved;
    }
    // Read `Read` of those of all parts.
    template <int Block, int Read>
    HK_DEVICE void read(Fragment<T, Shape>& dst) const {
      constexpr int kChunk = Read / Reads * kPartChunks + Read % Reads / kAddresses * kAddresses;
      constexpr int kOffset = Layout::offset(Shape::kRows * Block, kChunk);
      arch::read_lds<kOffset>(dst.words, this->address[Read % kAddresses]);
    }
  };
};

}  // namespace hk::swizzle
