// What waves do through LDS under any swizzle: fragments read along rows and down columns,
// cooperative copies, rings.
#pragma once

#include "kernel.hpp"

namespace hk {

template <class T, int Rows, int D, template <int> class Swizzle>
using TestTile = SharedTile<T, Rows, D, Swizzle<D* int(sizeof(T))>>;

// buffers: image of LDS, fragments [block][step][lane][8]. number[1]: first row for the reader.
template <class T, int D, template <int> class Swizzle>
HK_DEVICE void load_rows(const TileTestArgs& args) {
  using Tile = TestTile<T, 64, D, Swizzle>;
  fill_lds(args.buffer[0], args.number[0], arch::kLanes);
  const auto reader =
      RowReader<Tile>::of(this_lane(), args.number[1]).at(Tile{shared_address(lds)});
  constexpr int kSteps = D / DefaultShape::kDepth;
  static_for<0, kSteps>([&](auto step) {
    Fragment<T> first, second;
    load<0, step.value>(first, reader);
    load<1, step.value>(second, reader);
    wait_lds<1>(first);
    wait_lds<0>(second);
    constexpr int kWords = arch::kLanes * Fragment<T>::kWords;
    dump(words(args.buffer[1]) + step * kWords, first);
    dump(words(args.buffer[1]) + (kSteps + step) * kWords, second);
  });
}

// buffers: image of LDS, fragments [block][step][lane][8], the two addresses of each lane
template <class T, int D, template <int> class Swizzle>
HK_DEVICE void load_columns(const TileTestArgs& args) {
  using Tile = TestTile<T, 64, D, Swizzle>;
  fill_lds(args.buffer[0], args.number[0], arch::kLanes);
  const auto reader = ColumnReader<Tile>::of(this_lane()).at(Tile{shared_address(lds)});
  constexpr int kSteps = Tile::kRows / DefaultShape::kDepth;
  static_for<0, D / DefaultShape::kRows>([&](auto block) {
    Fragment<T> fragment[kSteps];
    static_for<0, kSteps>(
        [&](auto step) { load<block.value, step.value>(fragment[step], reader); });
    wait_lds<0>(fragment);
    static_for<0, kSteps>([&](auto step) {
      dump(words(args.buffer[1]) + (block * kSteps + step) * arch::kLanes * Fragment<T>::kWords,
           fragment[step]);
    });
  });
  dump(words(args.buffer[2]), reader);
}

// A result, converted, is the operand of the next product, whose other operand is read down
// columns: out^T[channel][column] = sum over 32 rows of values[row][channel] * src[row][column].
// buffers: image of LDS, src (a dumped block), out [block] dumped
template <class T, int D, template <int> class Swizzle>
HK_DEVICE void product_of_result(const TileTestArgs& args) {
  using Tile = TestTile<T, 64, D, Swizzle>;
  fill_lds(args.buffer[0], args.number[0], arch::kLanes);
  Block src;
  undump(src, words(args.buffer[1]));
  OperandTile<T, 32, 32> weights;
  static_for<0, DefaultShape::kResult / 2>(
      [&](auto i) { convert<T, i.value % 4>(weights.part[0][i / 4], pair(src, i)); });
  const auto reader = ColumnReader<Tile>::of(this_lane()).at(Tile{shared_address(lds)});
  static_for<0, D / DefaultShape::kRows>([&](auto block) {
    Block out;
    fill(out, 0);
    static_for<0, 2>([&](auto step) {
      Fragment<T> values;
      load<block.value, step.value>(values, reader);
      wait_lds<0>(values);
      mma(out, values, weights.part[0][step], out);
    });
    dump(words(args.buffer[2]) + block * arch::kLanes * DefaultShape::kResult, out);
  });
}

// buffers: LDS before and after, source. numbers: LDS bytes, row bytes, rows there, bytes of the last
template <class T, int Rows, int D, int Waves, template <int> class Swizzle>
HK_DEVICE void copy_tile(const TileTestArgs& args) {
  using Tile = TestTile<T, Rows, D, Swizzle>;
  using Share = TileCopy<Tile, Waves>;
  const int threads = Waves * arch::kLanes;
  fill_lds(args.buffer[0], args.number[0], threads);
  const u32 row_bytes = args.number[1];
  const Share share(this_wave(), this_lane(), row_bytes);
  const i32 rows = clamp_scalar(args.number[2] - share.first_row, Share::kRowsSpanned);
  const BoundedView src(address(args.buffer[1]) + wide_mul(share.first_row, row_bytes),
                        rows * row_bytes);
  copy(Tile{shared_address(lds)}, src, share);
  wait_copies<0>();
  dump_lds(args.buffer[0], args.number[0], threads);
}

// Streams tiles through a ring of three: each is read Stages - 1 steps after its copy started.
// buffers: rows of all tiles, fragments [tile][step][lane][8]. number[0]: tiles
template <class T, int D, template <int> class Swizzle>
HK_DEVICE void stream_tiles(const TileTestArgs& args) {
  constexpr int kWaves = 2, kStages = 3;
  using Tile = TestTile<T, 32, D, Swizzle>;
  using Share = TileCopy<Tile, kWaves>;
  TileRing<Tile, kStages> ring{shared_address(lds)};
  const Lane lane = this_lane();
  const Share share(this_wave(), lane, D * sizeof(T));
  const auto reader = RowReader<Tile>::of(lane);
  const TensorRows<PackedRows> tensor = {address(args.buffer[0]), 0, D * sizeof(T)};
  const PackedRows rows = {args.number[0] * Tile::kRows};
  i32 next = share.first_row;
  const auto copy_next = [&](Tile dst) {
    copy(dst, tensor.span(rows.place(next, Share::kRowsSpanned, {})), share);
    next += Tile::kRows;
  };
  static_for<0, kStages>([&](auto i) { copy_next(ring.tile(i)); });
  for (i32 j = 0; j < args.number[0]; ++j) {
    wait_copies<(kStages - 1) * Share::kCopies>();
    barrier();
    constexpr int kSteps = D / DefaultShape::kDepth;
    Fragment<T> fragment[kSteps];
    static_for<0, kSteps>([&](auto i) { load<0, i.value>(fragment[i], reader.at(ring.tile())); });
    wait_lds<0>(fragment);
    barrier();
    copy_next(ring.tile());
    ring.advance();
    if (this_wave() == j % kWaves)
      dump(words(args.buffer[1]) + j * sizeof(fragment) / 4 * arch::kLanes, fragment);
  }
  wait_copies<0>();
}

}  // namespace hk
