// What one wave computes: its rows and columns of a workgroup's tile of C, over all of the depth.
#pragma once

#include "stream.hpp"

namespace hk::gemm {

template <class Shape>
class GemmWave {
  using Size = Sizes<Shape>;
  using A = typename Shape::A;
  using B = typename Shape::B;
  using Matrix = Mma<B, A>;  // of C^T
  using TileA = typename Size::TileA;
  using TileB = typename Size::TileB;

 public:
  using StreamA = DepthStream<TileA, Size::kWaves>;
  using StreamB = DepthStream<TileB, Size::kWaves>;

  HK_DEVICE GemmWave(const StreamA& a, const StreamB& b, u32 lds, i32 wave, Lane lane)
      : a_{a, {lds}, RowReader<TileA>::of(lane, wave % Shape::kRowWaves * Size::kWaveRows)},
        b_{b,
           {lds + Size::RingA::kBytes},
           RowReader<TileB>::of(lane, wave / Shape::kRowWaves * Size::kWaveColumns)},
        lane_(lane) {
    each_block([&](auto column, auto row) { fill(result_.block[column][row], 0); });
  }

  HK_DEVICE void run(i32 depth) {
    static_for<0, Shape::kStages>([&](auto i) { start_copies(a_.ring.tile(i), b_.ring.tile(i)); });
    for (; depth >= Shape::kStep; depth -= Shape::kStep) step<false>(depth);
    if (depth > 0) step<true>(depth);
    wait_copies<0>();  // those past the last step: the LDS is given away when the waves end
  }

  // Calls body(block of C^T, its first row of C, its first column of C), these from the wave's own.
  template <class F>
  HK_DEVICE void each_result(F&& body) const {
    each_block([&](auto column, auto row) {
      body(result_.block[column][row], Index<Matrix::kCols * row.value>{},
           Index<Matrix::kRows * column.value>{});
    });
  }

 private:
  static constexpr int kRowBlocks = Size::kWaveRows / Matrix::kCols;
  static constexpr int kColumnBlocks = Size::kWaveColumns / Matrix::kRows;
  static constexpr int kParts = Shape::kStep / Matrix::kDepth;
  static constexpr int kReads = kRowBlocks + kColumnBlocks;  // LDS reads of a part
  static constexpr int kCopies = StreamA::Share::kCopies + StreamB::Share::kCopies;  // of a step

  template <class Stream, class Ring, class Reader>
  struct Operand {
    Stream stream;
    Ring ring;
    Reader reader;  // of the wave's rows in a tile at LDS byte 0
  };
  // One part of a step: operand columns (rows of C) and operand rows (columns of C).
  struct Fragments {
    Fragment<A> a[kRowBlocks];
    Fragment<B> b[kColumnBlocks];
  };

  Operand<StreamA, typename Size::RingA, RowReader<TileA>> a_;
  Operand<StreamB, typename Size::RingB, RowReader<TileB>> b_;
  Lane lane_;
  ResultTile<Size::kWaveColumns, Size::kWaveRows> result_;  // C^T

  template <class F>
  HK_DEVICE static void each_block(F&& body) {
    static_for<0, kColumnBlocks>(
        [&](auto column) { static_for<0, kRowBlocks>([&](auto row) { body(column, row); }); });
  }

  HK_DEVICE void start_copies(TileA a, TileB b) {
    a_.stream.copy_next(a);
    b_.stream.copy_next(b);
  }

  template <bool kMasked>
  HK_DEVICE void step(i32 depth) {
    wait_copies<(Shape::kStages - 1) * kCopies>();
    barrier();
    const TileA a = a_.ring.tile();
    const TileB b = b_.ring.tile();
    const auto a_rows = a_.reader.at(a);
    const auto b_rows = b_.reader.at(b);
    Fragments parts[2];
    load_part<0>(parts[0], a_rows, b_rows);
    static_for<0, kParts>([&](auto part) {
      constexpr bool kMore = part + 1 < kParts;
      Fragments& now = parts[part % 2];
      if constexpr (kMore) load_part<part + 1>(parts[(part + 1) % 2], a_rows, b_rows);
      wait_lds<kMore ? kReads : 0>(now.a, now.b);
      if constexpr (kMasked) mask_part(now, depth - Matrix::kDepth * part);
      each_block([&](auto column, auto row) {
        Block& dst = result_.block[column][row];
        mma(dst, now.b[column], now.a[row], dst);
      });
      fence_schedule();  // the compiler would gather all parts behind the last wait
    });
    barrier();
    start_copies(a, b);
    a_.ring.advance();
    b_.ring.advance();
  }

  template <int Part>
  HK_DEVICE static void load_part(Fragments& dst, const RowReader<TileA>& a,
                                  const RowReader<TileB>& b) {
    static_for<0, kRowBlocks>([&](auto i) { load<i.value, Part>(dst.a[i], a); });
    static_for<0, kColumnBlocks>([&](auto i) { load<i.value, Part>(dst.b[i], b); });
  }

  HK_DEVICE void mask_part(Fragments& part, i32 depth) const {
    for (auto& fragment : part.a) keep_below(fragment, fragment, depth, lane_);
    for (auto& fragment : part.b) keep_below(fragment, fragment, depth, lane_);
  }
};

}  // namespace hk::gemm
