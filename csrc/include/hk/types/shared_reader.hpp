// How a lane reads operand fragments from a shared tile: its addresses, and the offsets that
// instructions add to them.
//
// These readers serve every layout that
//   - repeats every kPeriod rows: offset(row + n * kPeriod, chunk) is a constant more
//   - permutes the chunks of 16 bytes within aligned groups of kMixedChunks, but for those of row 0
// so that a lane needs one address for each step within a group, and the rest is in the
// instruction. A layout derives from `PeriodicReaders`, or supplies readers of its own.
#pragma once

#include "../schedule.hpp"
#include "register_tile.hpp"

namespace hk {

// One copy instruction moves a block: 64 lanes x kCopyBytes, consecutive in LDS, from any
// addresses.
inline constexpr int kCopyBlock = arch::kLanes * arch::kCopyBytes;

// Strides in memory, in bytes: from a row to the next, and from a piece to the next where rows or
// columns are kept in pieces of 16 bytes.
struct RowStrides {
  u32 row, piece;

  HK_DEVICE constexpr RowStrides(u32 row_, u32 piece_ = 16) : row(row_), piece(piece_) {}
};

// A lane's load of 16 codes of a tile's 16 rows, to be widened. It loads from one row and byte. It
// writes two pieces: the first at an LDS byte that is counted from the first of these rows. The
// other piece is kSecond bytes after it, or has that bit flipped (kFlips). The pieces of the next
// part lie kPartBytes after. kDown: the codes are one of each row.
struct WidePlace {
  u32 row, source, destination;
};

// The addresses of a lane. A reader is made for a tile at LDS byte 0, and moved to where one lies.
template <int Count>
struct LaneAddresses {
  u32 address[Count];

  HK_DEVICE void move(u32 base) {
    for (u32& each : address) each += base;
  }
  HK_DEVICE void pin() {
    for (u32& each : address) pin_vector(each);
  }
};

// Addresses for a layout and reads of `bytes` side by side: one for each place within a group.
template <class Layout>
HK_DEVICE constexpr int addresses(int bytes) {
  return max(1, Layout::kMixedChunks * 16 / bytes);
}

// The tile's rows are the operand's lines: each lane reads along a row, ds_read_b128 or b64.
template <class Layout, class T, class Shape>
struct PeriodicRowReader : LaneAddresses<addresses<Layout>(Shape::kDepth * sizeof(T))> {
  static constexpr int kBytes = Shape::kOperand * sizeof(T);
  static constexpr int kStepChunks = Shape::kDepth * sizeof(T) / 16;
  static constexpr int kAddresses = addresses<Layout>(16 * kStepChunks);
  static_assert((kBytes == 8 || kBytes == 16) && Shape::kRows % Layout::kPeriod == 0);

  // Reads the tile's rows from `first_row` on, a multiple of the layout's period.
  HK_DEVICE static PeriodicRowReader of(Lane lane, int first_row = 0) {
    PeriodicRowReader reader;
    const int row = first_row + lane.line<Shape>(), group = lane.group<Shape>();
    static_for<0, kAddresses>([&](auto i) {
      constexpr int kShared = 16 / kBytes;  // lanes that read of one chunk
      reader.address[i] =
          Layout::offset(row, i * kStepChunks + group / kShared) + group % kShared * kBytes;
    });
    return reader;
  }
  template <class Tile>
  HK_DEVICE PeriodicRowReader at(Tile tile) const {
    PeriodicRowReader moved = *this;
    moved.move(tile.base);
    return moved;
  }

  // Operand lines of block `Block`, depth of step `Step`.
  template <int Block, int Step>
  HK_DEVICE void read(Fragment<T, Shape>& dst) const {
    constexpr int kOffset =
        Layout::offset(Shape::kRows * Block, Step / kAddresses * kAddresses * kStepChunks);
    arch::read_lds<kOffset>(dst.words, this->address[Step % kAddresses]);
  }
};

// The tile's rows are the depth: each lane reads down a column, transposed on the way. Element e
// of a lane has the depth that row e has in a result block, so that a converted result is the other
// operand without moving between lanes.
template <class Layout, class T, class Shape>
struct PeriodicColumnReader : LaneAddresses<2 * addresses<Layout>(Shape::kRows * sizeof(T))> {
  static constexpr int kBlockChunks = Shape::kRows * sizeof(T) / 16;
  static constexpr int kAddresses =
      addresses<Layout>(16 * kBlockChunks);  // for each quad of elements
  static_assert(sizeof(T) == 2 && Shape::kRows == 32 && Shape::kOperand == 8,
                "two reads of ds_read_b64_tr_b16");
  static_assert(Shape::kDepth % Layout::kPeriod == 0);

  // Reads the tile's rows from `first_row` on, a multiple of the layout's period.
  HK_DEVICE static PeriodicColumnReader of(Lane lane, int first_row = 0) {
    PeriodicColumnReader reader;
    const int row = first_row + Shape::row(0, lane.group<Shape>()) + lane.id % 16 / 4;
    const int chunk = lane.id / 16 % 2 * 2 + lane.id % 4 / 2, byte = lane.id % 2 * 8;
    static_for<0, 2>([&](auto quad) {
      static_for<0, kAddresses>([&](auto i) {
        reader.address[quad * kAddresses + i] =
            Layout::offset(row + Shape::row(4 * quad, 0), i * kBlockChunks + chunk) + byte;
      });
    });
    return reader;
  }
  template <class Tile>
  HK_DEVICE PeriodicColumnReader at(Tile tile) const {
    PeriodicColumnReader moved = *this;
    moved.move(tile.base);
    return moved;
  }

  template <int Block, int Step>
  HK_DEVICE void read(Fragment<T, Shape>& dst) const {
    constexpr int kOffset =
        Layout::offset(Shape::kDepth * Step, Block / kAddresses * kAddresses * kBlockChunks);
    Vec<u32, 2> low, high;
    arch::read_lds_transposed<kOffset>(low, this->address[Block % kAddresses]);
    arch::read_lds_transposed<kOffset>(high, this->address[kAddresses + Block % kAddresses]);
    dst.words = __builtin_shufflevector(low, high, 0, 1, 2, 3);
  }
};

template <class Layout>
struct PeriodicReaders {
  // The byte that a lane of a copy fetches, from that of the block's 16 rows: of rows in one piece.
  HK_DEVICE static u32 source(int block, int lane, RowStrides strides) {
    return Layout::copied_row(block, lane) * strides.row + Layout::copied_byte(block, lane);
  }
  // The place of that byte in its row, as the tile has rows.
  HK_DEVICE static int row_byte(int block, int lane) { return Layout::copied_byte(block, lane); }
  template <class T, class Shape>
  using RowReader = PeriodicRowReader<Layout, T, Shape>;
  template <class T, class Shape>
  using ColumnReader = PeriodicColumnReader<Layout, T, Shape>;
};

}  // namespace hk
