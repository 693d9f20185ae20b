// Scales of 32 neighbours along the depth, e8m0 codes. The matrix unit multiplies by them. Where the
// weights alone have scales, the instructions that widen them do.
//
// A lane's *scale word* holds the four codes of its row in 256 of the depth that belong to the
// lane's half of the wave. Words of 32 rows lie in the order of the lanes, in 256 bytes.
// [rows / 32, depth / 256, 64 lanes, 4 bytes].
#pragma once

#include "scales.hpp"

namespace hk::gemm {

inline constexpr u32 kWordsBytes = arch::kLanes * sizeof(u32);  // of 32 rows

// The scale words of `blocks` times 32 rows, from a step's on: none of rows that do not exist.
HK_DEVICE RowSpan scale_words(const void* scales, i32 rows, i32 k, i32 first_row, i32 blocks,
                              i32 first_word) {
  const i32 words = ceil_div(k, kScaleWordDepth), first = first_row < rows ? first_row / 32 : 0;
  const i32 there = clamp_scalar(ceil_div(rows - first_row, 32), blocks);
  const u32 left = clamp_scalar(there * words - first_word, there * words);
  return {address(scales) + (wide_mul(first, words) + first_word) * kWordsBytes,
          left * kWordsBytes};
}

// Blocks of a wave's rows that have scales: none of 16-bit activations.
template <class Shape>
inline constexpr int scaled_row_blocks = Shape::Format::kPackedA ? Shape::kWaveRows / 32 : 0;

// The product of a part, with those scale words that its format takes.
template <class Shape, int Part, int Row>
HK_DEVICE void multiply_words(Block& sum, const auto& a, const auto& w, const u32* row_words,
                              u32 column_words) {
  using Format = typename Shape::Format;
  if constexpr (Format::kPackedA)
    Format::template multiply<Part>(sum, a, w, row_words[Row], column_words);
  else
    Format::template multiply<Part>(sum, a, w, column_words);
}

// Each wave loads the words of its rows and columns to registers, a step ahead.
template <class Shape, Scales Kind>
  requires(is_mx(Kind) && !Shape::kDeep)
class StepScales<Shape, Kind> {
  using Format = typename Shape::Format;
  static constexpr int kRowBlocks = scaled_row_blocks<Shape>,
                       kColumnBlocks = Shape::kWaveColumns / 32;
  // Steps of a scale word, from its lower bits on.
  static constexpr int kSteps = kScaleWordDepth / Shape::kStep;
  static_assert(kSteps * Shape::kStep == kScaleWordDepth && Shape::kStep >= 64);
  static_assert(Shape::kStages == 2, "the words of one step are on their way");

 public:
  static constexpr int kCopies = 0, kLoads = kRowBlocks + kColumnBlocks;

 private:
  i32 loaded_step_, taken_step_;
  RowSpan rows_, columns_;  // from the next step's words of the wave's first block
  u32 from_[kLoads];        // byte from there, of this lane
  u32 next_[kLoads], words_[kLoads];

 public:
  HK_DEVICE StepScales(const GemmArgs& args, i32 tile_row, i32 tile_column, i32 step, u32, i32 wave,
                       Lane lane)
      : loaded_step_(step), taken_step_(step),
        rows_(scale_words(args.a_scale, args.m, args.k, tile_row + Shape::row_of(wave), kRowBlocks,
                          step / kSteps)),
        columns_(scale_words(args.b_block_scale, args.n, args.k,
                             tile_column + Shape::column_of(wave), kColumnBlocks, step / kSteps)) {
    // past a block's last word comes the next block's first: of a step that is not there
    const u32 bytes = ceil_div(args.k, kScaleWordDepth) * kWordsBytes;
    static_for<0, kLoads>(
        [&](auto i) { from_[i] = (i < kRowBlocks ? i : i - kRowBlocks) * bytes + lane.id * 4; });
  }

  HK_DEVICE void clear() {}
  HK_DEVICE void add_last(auto&) {}
  HK_DEVICE void end_step() {}
  template <int, int = 0>
  HK_DEVICE void start_copy() {}

  template <int Load>
  HK_DEVICE void load_ahead() {
    const BoundedView src = Load < kRowBlocks ? rows_ : columns_;
    arch::load_word(next_[Load], src.descriptor, from_[Load]);
    if constexpr (Load + 1 == kLoads) {
      const u32 bytes = loaded_step_ % kSteps == kSteps - 1 ? kWordsBytes : 0;
      advance(rows_, bytes), advance(columns_, bytes);
      ++loaded_step_;
    }
  }

  template <int = 0>
  HK_DEVICE void begin_step() {
    u32 shift = taken_step_ % kSteps * (32 / kSteps);
    pin_scalar(shift);  // a move even by 0: what is in flight must not be moved later
    for (auto& each : next_) pin_vector(each);
    static_for<0, kLoads>([&](auto i) { words_[i] = next_[i] >> shift; });
    ++taken_step_;
  }

  template <int Part, int Column, int Row>
  HK_DEVICE void multiply(auto& total, const auto& a, const auto& w) {
    multiply_words<Shape, Part, Row>(total.block[Column][Row], a, w, words_,
                                     words_[kRowBlocks + Column]);
  }
};

}  // namespace hk::gemm
