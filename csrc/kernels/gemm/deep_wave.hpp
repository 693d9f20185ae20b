// The wave of a tile of few rows. It computes all of the tile, over every kWaves-th step of the
// depth, and waits for no other wave until all add up their sums.
//
// Weights go from memory to registers, in the order of the matrix unit, and each byte once.
// Activations take the way through LDS, where every wave has a ring of its own.
#pragma once

#include "block_scales.hpp"
#include "mx_words.hpp"

namespace hk::gemm {

// The weights of a step, from memory in the order of the matrix unit.
template <class Shape>
struct DirectWeights {
  using Line = gemm::Line<Shape::Format::kWordsW>;
  static constexpr int kColumnBlocks = Shape::kWaveColumns / DefaultShape::kRows,
                       kLoads = kColumnBlocks * Shape::kParts * Line::kReads;
  using Step = Line[kColumnBlocks][Shape::kParts];

  // The bytes of 16 rows in a part, and the first of those that 6-bit codes have besides pieces.
  static constexpr int kPartBytes = 16 * Shape::kStepBytes / Shape::kParts, kRest = 512;
  // Bytes from piece to piece, and from half to half of the wave.
  static constexpr int kPiece = Shape::kHalves ? 256 : 512,
                       kHalf = Shape::kHalves ? Line::kPieces * 256 : 256;

  RowSpan span;               // from the next step's first byte to the end of the columns
  u32 source[kColumnBlocks];  // of this lane
  u32 rest[kColumnBlocks];    // the same of 6-bit codes' last 8 bytes (six_bit_rows.hpp)

  HK_DEVICE DirectWeights(const GemmArgs& args, i32 first, i32 step, Lane lane) : span{} {
    const u32 group_bytes = 16 * packed_row_bytes<Shape, typename Shape::Format::W>(args),
              start = 16 * step * Shape::kStepBytes;
    const u32 groups =
        clamp_scalar(ceil_div(args.n, 16) - first / 16, ceil_div(Shape::kWaveColumns, 16));
    span.base = address(args.b) + wide_mul(first / 16, group_bytes) + start;
    span.bytes = groups * group_bytes;
    span.bytes -= clamp_scalar(start, span.bytes);
    static_for<0, kColumnBlocks>([&](auto block) {
      const u32 group = lane.col / 16, first = (2 * block + group) * group_bytes;
      source[block] = first + lane.half * kHalf + lane.col % 16 * 16;
      rest[block] = first + kRest + (lane.half ^ group) * 128 + lane.col % 16 * 8;
    });
  }

  HK_DEVICE void load(Step& dst) {
    const BoundedView src = span;
    static_for<0, kColumnBlocks>([&](auto block) {
      static_for<0, Shape::kParts>([&](auto part) {
        Line& line = dst[block][part];
        static_for<0, Line::kPieces>([&](auto piece) {
          line.pieces[piece].words =
              load_words<4>(src, source[block] + part * kPartBytes + piece * kPiece);
        });
        if constexpr (Line::kPieces < Line::kReads)
          line.rest[0] = load_words<2>(src, rest[block] + part * kPartBytes);
      });
    });
    gemm::advance(span, Shape::kNextStep * 16 * Shape::kStepBytes);
  }
};

template <class Shape>
class DeepWave {
  using Format = typename Shape::Format;
  using TileA = typename Shape::TileA;
  static constexpr int kRowBlocks = Shape::kWaveRows / DefaultShape::kCols;
  static constexpr int kColumnBlocks = Shape::kWaveColumns / DefaultShape::kRows;
  static constexpr int kBlocks = kRowBlocks * kColumnBlocks, kParts = Shape::kParts;
  static constexpr int kReads = kRowBlocks * Line<Format::kWordsA>::kReads;
  static constexpr int kCopiesA = ActivationStream<Shape>::kCopies,
                       kScaleCopies = StepScales<Shape>::kCopies,
                       kWeightLoads = DirectWeights<Shape>::kLoads,
                       kLoads = kCopiesA + kScaleCopies + kWeightLoads;
  using Part = Line<Format::kWordsA>[kRowBlocks];

 public:
  using Result = ResultTile<Shape::kWaveColumns, Shape::kWaveRows>;
  Result result;  // C^T, of this wave's steps

  // `steps` of the tile from the first one on; `lds`: of this wave.
  HK_DEVICE DeepWave(const GemmArgs& args, i32 row, i32 column, i32 first_step, i32 steps, u32 lds,
                     i32 wave, Lane lane)
      : steps_(ceil_div(max(steps - wave, 0), Shape::kNextStep)),
        bytes_(depth_bytes<Shape>(args) - (first_step + wave) * Shape::kRowBytesA),
        a_(args, row, u32((first_step + wave) * Shape::kRowBytesA), 0, lane), ring_{lds},
        reader_(RowReader<TileA>::of(lane, 0)), w_(args, column, first_step + wave, lane),
        scales_(args, row, column, first_step + wave, lds + Shape::RingA::kBytes, 0, lane),
        lane_(lane) {}

  HK_DEVICE void run() {
    constexpr int kAhead = Shape::kStages;
    typename DirectWeights<Shape>::Step weights[kAhead];
    Part parts[2];
    i32 ahead = steps_;  // that are not on their way
    static_for<0, kAhead>(
        [&](auto stage) { start<stage>(weights[stage], ring_.tile(stage), ahead); });
    clear(result);
    scales_.clear();
    if (steps_ > 0) {
      wait_step<kAhead - 1>();
      read<0>(parts[0], 0);
      for (; steps_ > kAhead; steps_ -= kAhead) {
        round<false>(weights, parts, ahead);
        bytes_ -= kAhead * Shape::kNextStep * Shape::kRowBytesA;
      }
      round<true>(weights, parts, ahead);
    }
    wait_copies<0>();  // those past the last step: the LDS is used again
    Format::wait_for_sums();
    scales_.add_last(result);
  }

 private:
  i32 steps_, bytes_;  // of the wave; of A's rows, from its next step on
  ActivationStream<Shape> a_;
  typename Shape::RingA ring_;
  RowReader<TileA> reader_;  // of a tile at LDS byte 0
  DirectWeights<Shape> w_;
  StepScales<Shape> scales_;
  Lane lane_;

  // Starts all loads of a step; past the last one, to keep the count: of no weights.
  template <int Stage>
  HK_DEVICE void start(typename DirectWeights<Shape>::Step& weights, TileA a, i32& ahead) {
    w_.span.bytes = ahead > 0 ? w_.span.bytes : 0;
    pin_scalar(w_.span.bytes);
    w_.load(weights);
    static_for<0, kScaleCopies>([&](auto copy) { scales_.template start_copy<copy, Stage>(); });
    static_for<0, kCopiesA>([&](auto copy) { copy_piece<copy>(a, a_); });
    a_.advance();
    --ahead;
  }

  template <int Part_>
  HK_DEVICE void read(Part& dst, int stage) const {
    const auto rows = reader_.at(ring_.tile(stage));
    static_for<0, kRowBlocks>([&](auto block) {
      static_for<0, Line<Format::kWordsA>::kReads>(
          [&](auto read) { load_line<block, Part_, read>(dst[block], rows); });
    });
  }

  // A step in every place of the ring. The last round ends with the wave's last step.
  template <bool kLast, int Stage = 0>
  HK_DEVICE void round(typename DirectWeights<Shape>::Step (&weights)[Shape::kStages],
                       Part (&parts)[2], i32& ahead) {
    if constexpr (Stage < Shape::kStages) {
      if (kLast && Stage > 0 && Stage >= steps_) return;
      step<kLast, Stage>(weights[Stage], parts);
      if constexpr (kLast)
        scales_.pass();
      else
        start<Stage>(weights[Stage], ring_.tile(Stage), ahead);
      round<kLast, Stage + 1>(weights, parts, ahead);
    }
  }

  template <bool kLast, int Stage>
  HK_DEVICE void step(typename DirectWeights<Shape>::Step& weights, Part (&parts)[2]) {
    constexpr int kAhead = Shape::kStages;
    const i32 bytes = bytes_ - Stage * Shape::kNextStep * Shape::kRowBytesA;
    if constexpr (kLast && Stage > 0) {  // not read ahead: there might have been no such step
      wait_step<kAhead - 1 - Stage>();
      read<0>(parts[Stage * kParts % 2], Stage);
    }
    static_for<0, kParts>([&](auto part) {
      constexpr bool kEnds = part + 1 == kParts, kNone = kLast && kEnds;
      Part& now = parts[(Stage * kParts + part) % 2];
      Part& next = parts[(Stage * kParts + part + 1) % 2];
      wait_part(now);
      if constexpr (kLast && !Format::kPackedA)
        mask_past<Shape::kHalves>(now, bytes - part * 8 * Format::kWordsA, lane_);
      if constexpr (part == 0) scales_.template begin_step<Stage>();
      if constexpr (kEnds) scales_.end_step();
      if constexpr (kEnds && !kNone) wait_step<kAhead - 2>();
      if constexpr (!kNone) read<kEnds ? 0 : part + 1>(next, (Stage + kEnds) % kAhead);
      fence_schedule();
      static_for<0, kColumnBlocks>([&](auto column) {
        static_for<0, kRowBlocks>([&](auto row) {
          scales_.template multiply<part, column, row>(result, now[row], weights[column][part]);
        });
      });
      fence_schedule();
    });
  }

  // Waits until at most `Steps` steps are still on their way.
  template <int Steps>
  HK_DEVICE static void wait_step() {
    fence_schedule();
    wait_copies<Steps * kLoads>();
    fence_schedule();
  }

  HK_DEVICE static void wait_part(Part& part) {
    wait_lds<0>();
    for (auto& line : part) line.pin();
  }
};

// The sums of all waves, added in the order of the waves: of those blocks of the tile that this
// wave stores, if there is one for it. Each leaves its own where its copies were.
template <class Shape, class Own>
HK_DEVICE void sum_waves(const ResultTile<Shape::kWaveColumns, Shape::kWaveRows>& result, Own& own,
                         u32 lds, i32 wave, Lane lane) {
  constexpr int kRowBlocks = Shape::kWaveRows / 32;
  using Quad = __attribute__((address_space(3))) Vec<f32, 4>;
  const auto quads_of = [&](i32 of, i32 block) {
    return (Quad*)(lds + of * Shape::kWaveBytes) + block * 4 * 64 + lane.id;
  };
  asm volatile("" ::: "memory");  // behind the wait for the wave's last copy
  static_for<0, Shape::kBlocks>([&](auto block) {
    const Block& from = result.block[block / kRowBlocks][block % kRowBlocks];
    Quad* to = quads_of(wave, block);
    static_for<0, 4>([&](auto quad) {
      to[quad * 64] = {from[4 * quad], from[4 * quad + 1], from[4 * quad + 2], from[4 * quad + 3]};
    });
  });
  synchronize();
  const i32 first = min(wave * Shape::kOwnBlocks, Shape::kBlocks - Shape::kOwnBlocks);
  static_for<0, Shape::kOwnBlocks>([&](auto block) {
    Vec<f32, 4> each[Shape::kWaves][4];
    static_for<0, Shape::kWaves>([&](auto of) {
      static_for<0, 4>([&](auto quad) { each[of][quad] = quads_of(of, first + block)[quad * 64]; });
    });
    fence_schedule();  // all reads at once: one latency
    static_for<0, 4>([&](auto quad) {
      Vec<f32, 4> sum = each[0][quad];
      static_for<1, Shape::kWaves>([&](auto of) { sum += each[of][quad]; });
      static_for<0, 4>([&](auto i) { own.block[0][block][4 * quad + i] = sum[i.value]; });
    });
  });
}

}  // namespace hk::gemm
