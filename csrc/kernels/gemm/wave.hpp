// The wave of a large launch: it computes its rows and columns of a workgroup's tile of C, over
// some of the depth.
#pragma once

#include "block_scales.hpp"
#include "mx_scales.hpp"

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
  static constexpr int kReads =
      kRowBlocks * Line<Format::kWordsA>::kReads + kColumnBlocks * Line<Format::kWordsW>::kReads;
  static constexpr int kScaleCopies = StepScales<Shape>::kCopies,
                       kCopiesA = ActivationStream<Shape>::kCopies,
                       kCopiesW = WeightStream<Shape>::kCopies,
                       kCopies = kScaleCopies + kCopiesA + kCopiesW;
  // Slots: what runs beside one matrix instruction. Reads of a part are spread over most of its
  // slots, since the LDS takes few at once. Copies are spread over half a step, since a CU takes
  // few at once, too; their slots are counted from where a step's last part begins. The other half
  // is for the latency of the last one; more than 8 copies of tiles take half of it, too. Small
  // tiles wait for memory most: they copy at once. So do tiles of two stages, which leave that
  // latency a step: if a slot is long and free of scales. Lines of 6-bit codes take two reads in
  // slots of 32 clocks: they need all slots.
  static constexpr int kReadSlots = Format::kWordsA == 6 ? kBlocks : kBlocks * 3 / 4;
  static constexpr bool kRoomySlots = Format::kWordsA >= 8 && Format::kScales != Scales::kBlocks,
                        kCopyAtOnce = kBlocks <= 2 || (Shape::kStages == 2 && kRoomySlots);
  static constexpr int kFirstCopySlot = !kCopyAtOnce,
                       kCopySlots = kParts * kBlocks * (kCopiesA + kCopiesW > 8 ? 3 : 2) / 4;
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
           RowReader<TileA>::of(lane, Shape::row_of(wave))},
        w_{{args, first_column, u32(first_step * Shape::kStepBytes), wave, lane},
           {lds + Shape::RingA::kBytes},
           RowReader<TileW>::of(lane, Shape::column_of(wave))},
        scales_(args, first_row, first_column, first_step,
                lds + Shape::RingA::kBytes + Shape::RingW::kBytes, wave, lane),
        lane_(lane) {}

  // `steps` from the first one on; `bytes` of A's rows are left where the last one begins.
  HK_DEVICE void run(i32 steps, i32 bytes) {
    static_for<0, StepScales<Shape>::kLoads>(
        [&](auto load) { scales_.template load_ahead<load>(); });
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
    Line<Format::kWordsA> a[kRowBlocks];
    Line<Format::kWordsW> w[kColumnBlocks];
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
      if constexpr (kLast && !Format::kPackedA)
        mask_past<Shape::kHalves>(now.a, bytes - part * 8 * Format::kWordsA, lane_);
      if constexpr (kBegins) scales_.begin_step();
      if constexpr (kEnds) scales_.end_step();
      if constexpr (kEnds && !kLast) {
        wait_copies<(Shape::kStages - 2) * kCopies>();
        barrier();
      }
      interleave<0, kBlocks>(
          [&](auto slot) {
            constexpr int kColumn = slot / kRowBlocks, kRow = slot % kRowBlocks;
            scales_.template multiply<part, kColumn, kRow>(result, now.a[kRow], now.w[kColumn]);
          },
          [&](auto slot) {
            if constexpr (!kEnds || !kLast)
              spread<slot, 0, kReadSlots, kReads>(
                  [&](auto read) { load_piece<read, kEnds ? 0 : part + 1>(next, a_rows, w_rows); });
            if constexpr (kBegins && !kLast)
              spread<slot, 0, kBlocks / 2, StepScales<Shape>::kLoads>(
                  [&](auto load) { scales_.template load_ahead<load>(); });
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
    constexpr int kOfLineA = Line<Format::kWordsA>::kReads,
                  kOfLineW = Line<Format::kWordsW>::kReads, kOfA = kRowBlocks * kOfLineA;
    if constexpr (Read < kOfA) {
      constexpr int kBlock = Read / kOfLineA;
      load_line<kBlock, Index_, Read % kOfLineA>(dst.a[kBlock], a);
    } else {
      constexpr int kBlock = (Read - kOfA) / kOfLineW;
      load_line<kBlock, Index_, (Read - kOfA) % kOfLineW>(dst.w[kBlock], w);
    }
  }

  HK_DEVICE static void wait_part(Part& part) {
    wait_lds<0>();
    for (auto& line : part.a) line.pin();
    for (auto& line : part.w) line.pin();
  }
};

}  // namespace hk::gemm
