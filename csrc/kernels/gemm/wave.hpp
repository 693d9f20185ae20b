// The wave of a large launch: it computes its rows and columns of a workgroup's tile of C, over
// some of the depth.
#pragma once

#include "scales.hpp"

namespace hk::gemm {

template <class Shape>
class GemmWave {
  using Format = typename Shape::Format;
  using TileA = typename Shape::TileA;
  using TileW = typename Shape::TileW;
  static constexpr int kRowBlocks = Shape::kWaveRows / DefaultShape::kCols;
  static constexpr int kColumnBlocks = Shape::kWaveColumns / DefaultShape::kRows;
  static constexpr int kBlocks = kRowBlocks * kColumnBlocks, kParts = Shape::kParts;
  // LDS reads of a part, copies of a step.
  static constexpr int kReads = kRowBlocks * Format::kPiecesA + kColumnBlocks * Format::kPiecesW;
  static constexpr int kScaleCopies = StepScales<Shape>::kCopies,
                       kCopiesA = ActivationStream<Shape>::kCopies,
                       kCopiesW = WeightStream<Shape>::kCopies,
                       kCopies = kScaleCopies + kCopiesA + kCopiesW;
  // Slots: what runs beside one matrix instruction. Reads of a part are spread over most of its
  // slots, since the LDS takes few at once. Copies are spread over half a step, since a CU takes
  // few at once, too; their slots are counted from where a step's last part begins. The other half
  // is for the latency of the last one. Small tiles wait for memory most: they copy at once. So do
  // tiles of two stages, which leave that latency a step: if a slot is long and free of scales.
  static constexpr int kReadSlots = kBlocks * 3 / 4;
  static constexpr bool kRoomySlots = Format::kPiecesA == 2 && !Format::kBlockScales,
                        kCopyAtOnce = kBlocks <= 2 || (Shape::kStages == 2 && kRoomySlots);
  static constexpr int kFirstCopySlot = !kCopyAtOnce, kCopySlots = kParts * kBlocks / 2;
  // Copies that start before the next step does.
  static constexpr int kEarlyCopies =
      min(kCopies, ceil_div((kBlocks - kFirstCopySlot) * kCopies, kCopySlots));
  static_assert(kScaleCopies <= kEarlyCopies, "the next step loads the scales after these");

 public:
  ResultTile<Shape::kWaveColumns, Shape::kWaveRows> result;  // C^T

  HK_DEVICE GemmWave(const GemmArgs& args, i32 first_row, i32 first_column, i32 first_step, u32 lds,
                     i32 wave, Lane lane)
      : a_{{args, first_row, u32(first_step * Shape::kRowBytesA), wave, lane},
           {lds},
           RowReader<TileA>::of(lane, wave % Shape::kRowWaves * Shape::kWaveRows)},
        w_{{args, first_column, u32(first_step * Shape::kStepBytes), wave, lane},
           {lds + Shape::RingA::kBytes},
           RowReader<TileW>::of(lane, wave / Shape::kRowWaves * Shape::kWaveColumns)},
        scales_(args, first_row + wave % Shape::kRowWaves * Shape::kWaveRows,
                first_column + wave / Shape::kRowWaves * Shape::kWaveColumns, first_step,
                lds + Shape::RingA::kBytes + Shape::RingW::kBytes + wave * Shape::kScaleBytes,
                lane),
        lane_(lane) {}

  // `steps` from the first one on; `bytes` of A's rows are left where the last one begins.
  HK_DEVICE void run(i32 steps, i32 bytes) {
    static_for<0, Shape::kStages>([&](auto i) {
      constexpr int kHere = i + 1 < Shape::kStages ? kCopies : kEarlyCopies;
      static_for<0, kHere>([&](auto copy) { start_copy<copy>(a_.ring.tile(i), w_.ring.tile(i)); });
    });
    a_.ring.start_at(0);
    w_.ring.start_at(0);
    clear(result);
    scales_.clear();
    if (steps > 0) {
      wait_copies<(Shape::kStages - 2) * kCopies + kEarlyCopies>();
      barrier();
      Part parts[2];
      const auto a_rows = a_.reader.at(a_.ring.tile());
      const auto w_rows = w_.reader.at(w_.ring.tile());
      static_for<0, kReads>([&](auto read) { load_piece<read, 0>(parts[0], a_rows, w_rows); });
      for (; steps > 1; --steps) step<false>(parts, 0);
      step<true>(parts, bytes);
    }
    wait_copies<0>();  // those past the last step: the LDS is used again, or given away
    Format::wait_for_sums();
    scales_.add_last(result);
  }

 private:
  template <class Stream, class Ring, class Reader>
  struct Operand {
    Stream stream;
    Ring ring;
    Reader reader;  // of the wave's rows in a tile at LDS byte 0
  };
  struct Part {
    Piece a[kRowBlocks][Format::kPiecesA];
    Piece w[kColumnBlocks][Format::kPiecesW];
  };

  Operand<ActivationStream<Shape>, typename Shape::RingA, RowReader<TileA>> a_;
  Operand<WeightStream<Shape>, typename Shape::RingW, RowReader<TileW>> w_;
  StepScales<Shape> scales_;
  Lane lane_;

  // Multiplies the parts of a step, each while the next one is read; the last one while the next
  // step's first is. Between the two all waves have read this step, and have copied the next one:
  // from there on, and into the next step, they copy a later one to where this one was.
  template <bool kLast>
  HK_DEVICE void step(Part (&parts)[2], i32 bytes) {
    static_for<0, kParts>([&](auto part) {
      constexpr bool kBegins = part == 0, kEnds = part + 1 == kParts;
      Part& now = parts[part % 2];
      Part& next = parts[(part + 1) % 2];
      if constexpr (kEnds && !kLast) {
        a_.ring.advance();
        w_.ring.advance();
      }
      auto a_rows = a_.reader.at(a_.ring.tile());
      auto w_rows = w_.reader.at(w_.ring.tile());
      if constexpr (kEnds && !kLast) {
        for (auto& address : a_rows.address) pin_vector(address);
        for (auto& address : w_rows.address) pin_vector(address);
        fence_schedule();
      }
      wait_part(now);
      if constexpr (kLast) mask_past(now.a, bytes - part * 32 * Format::kPiecesA, lane_);
      if constexpr (kBegins) scales_.load();
      if constexpr (kEnds) scales_.take();
      if constexpr (kEnds && !kLast) {
        wait_copies<(Shape::kStages - 2) * kCopies>();
        barrier();
      }
      interleave<0, kBlocks>(
          [&](auto slot) {
            constexpr int kColumn = slot / kRowBlocks, kRow = slot % kRowBlocks;
            scales_.template multiply<kBegins, kColumn, kRow>(result, now.a[kRow], now.w[kColumn]);
          },
          [&](auto slot) {
            if constexpr (!kEnds || !kLast)
              spread<slot, 0, kReadSlots, kReads>(
                  [&](auto read) { load_piece<read, kEnds ? 0 : part + 1>(next, a_rows, w_rows); });
          },
          [&](auto slot) {
            constexpr int kSlot = (part + 1) % kParts * kBlocks + slot;
            if constexpr (!kLast)
              spread<kSlot, kFirstCopySlot, kCopySlots, kCopies>(
                  [&](auto copy) { start_copy<copy>(a_.ring.free_tile(), w_.ring.free_tile()); });
          });
    });
  }

  // Starts the `Copy`th copy of a step.
  template <int Copy>
  HK_DEVICE void start_copy(TileA a, TileW w) {
    constexpr int kOfA = Copy - kScaleCopies, kOfW = kOfA - kCopiesA;
    if constexpr (kOfA < 0) {
      scales_.template start_copy<Copy>();
    } else if constexpr (kOfW < 0) {
      copy_piece<kOfA>(a, a_.stream);
      if constexpr (kOfA + 1 == kCopiesA) a_.stream.advance();
    } else {
      copy_piece<kOfW>(w, w_.stream);
      if constexpr (kOfW + 1 == kCopiesW) w_.stream.advance();
    }
  }

  // Starts the `Read`th read of part `Index_`.
  template <int Read, int Index_>
  HK_DEVICE static void load_piece(Part& dst, const RowReader<TileA>& a,
                                   const RowReader<TileW>& w) {
    constexpr int kOfA = kRowBlocks * Format::kPiecesA;
    if constexpr (Read < kOfA) {
      constexpr int kBlock = Read / Format::kPiecesA, kPiece = Read % Format::kPiecesA;
      load<kBlock, Index_ * Format::kPiecesA + kPiece>(dst.a[kBlock][kPiece], a);
    } else {
      constexpr int kBlock = (Read - kOfA) / Format::kPiecesW,
                    kPiece = (Read - kOfA) % Format::kPiecesW;
      load<kBlock, Index_ * Format::kPiecesW + kPiece>(dst.w[kBlock][kPiece], w);
    }
  }

  HK_DEVICE static void wait_part(Part& part) {
    wait_lds<0>();
    const auto pin = [](auto& lines) {
      for (auto& pieces : lines)
        for (auto& piece : pieces) pin_vector(piece.words);
    };
    pin(part.a), pin(part.w);
  }
};

}  // namespace hk::gemm
