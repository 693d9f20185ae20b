// Scale words (mx_scales.hpp) of a tile of few rows: each wave loads its own steps' to registers.
#pragma once

#include "mx_scales.hpp"

namespace hk::gemm {

template <class Shape, Scales Kind>
  requires(is_mx(Kind) && Shape::kDeep)
class StepScales<Shape, Kind> {
  static constexpr int kRowBlocks = scaled_row_blocks<Shape>,
                       kColumnBlocks = Shape::kWaveColumns / 32;
  static constexpr int kSteps = kScaleWordDepth / Shape::kStep;  // of a word
  static_assert(Shape::kNextStep % kSteps == 0, "a wave has the same part of all words");

 public:
  static constexpr int kCopies = kRowBlocks + kColumnBlocks, kLoads = 0;

 private:
  RowSpan source_[kCopies];  // of blocks of rows, then of columns
  u32 lane_byte_, shift_;
  u32 loaded_[Shape::kStages][kCopies], words_[kCopies];

 public:
  HK_DEVICE StepScales(const GemmArgs& args, i32 row, i32 column, i32 step, u32, i32, Lane lane)
      : lane_byte_(lane.id * 4), shift_(step % kSteps * (32 / kSteps)) {
    static_for<0, kRowBlocks>([&](auto i) {
      source_[i] = scale_words(args.a_scale, args.m, args.k, row + 32 * i, 1, step / kSteps);
    });
    static_for<0, kColumnBlocks>([&](auto i) {
      source_[kRowBlocks + i] =
          scale_words(args.b_block_scale, args.n, args.k, column + 32 * i, 1, step / kSteps);
    });
  }

  HK_DEVICE void clear() {}
  HK_DEVICE void pass() {}
  HK_DEVICE void end_step() {}
  HK_DEVICE void add_last(auto&) {}

  template <int Copy, int Stage>
  HK_DEVICE void start_copy() {
    loaded_[Stage][Copy] = load_word(source_[Copy], lane_byte_);
    advance(source_[Copy], Shape::kNextStep / kSteps * kWordsBytes);
  }

  template <int Stage>
  HK_DEVICE void begin_step() {
    static_for<0, kCopies>([&](auto i) { words_[i] = loaded_[Stage][i] >> shift_; });
  }

  template <int Part, int Column, int Row>
  HK_DEVICE void multiply(auto& total, const auto& a, const auto& w) {
    multiply_words<Shape, Part, Row>(total.block[Column][Row], a, w, words_,
                                     words_[kRowBlocks + Column]);
  }
};

}  // namespace hk::gemm
