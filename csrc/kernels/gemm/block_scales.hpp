// Scales of a step: of each row's 128 activations, and of 128 x 128 weights. A step's products are
// summed apart, and added to the rest times their scales while the next step is multiplied.
#pragma once

#include "scales.hpp"

namespace hk::gemm {

// Starts a scalar load, which counts with the LDS reads in `wait_lds`. Assembly, or the compiler
// would move it to where its result is used. `dst` holds nothing until `wait_lds`, and a pin behind
// it.
HK_DEVICE void load_scalar(f32& dst, u64 address) {
  asm volatile("s_load_dword %0, %1, 0" : "=s"(dst) : "s"(address));
}

// The activations' scales travel with the tiles of their step. Every wave copies those of its own
// rows to a place of its own, so that none waits for another.
template <class Shape>
class StepScales<Shape, Scales::kBlocks> {
  using Format = typename Shape::Format;
  static constexpr int kRowBlocks = Shape::kWaveRows / DefaultShape::kCols,
                       kColumnBlocks = Shape::kWaveColumns / DefaultShape::kRows,
                       kBlocks = kRowBlocks * kColumnBlocks;
  static_assert(Shape::kStep == kScaleBlock && kScaleBlock % Shape::kWaveColumns == 0);

  i32 rows_are_scaled_, weights_are_scaled_;
  RowSpan rows_;          // from the next step's scale of the wave's first row to the last scale
  u32 row_bytes_, row_;   // from row to row, from the first to the lane's
  u32 step_bytes_;        // from step to step
  u64 weights_;           // address of the scale that is loaded next
  u32 slots_, slot_ = 0;  // LDS byte of the wave's own, and from there to that of the oldest step
  f32 of_row_[kRowBlocks], of_weights_ = 0;  // loaded
  ColumnVector factor_[kRowBlocks];          // of `sums_`
  ResultTile<Shape::kWaveColumns, Shape::kWaveRows> sums_;
  Lane lane_;

 public:
  static constexpr int kCopies = Shape::kScaleCopies, kLoads = 0;
  static constexpr u32 kSlotBytes = kCopies * arch::kLanes * sizeof(f32);

  // The tile's first row and column; `lds`: Stages * kSlotBytes for each wave that copies.
  HK_DEVICE StepScales(const GemmArgs& args, i32 tile_row, i32 tile_column, i32 step, u32 lds,
                       i32 wave, Lane lane)
      : rows_are_scaled_(args.a_scale != nullptr),
        weights_are_scaled_(args.b_block_scale != nullptr),
        row_bytes_(args.a_scale_row * sizeof(f32)), row_(lane.id * row_bytes_),
        step_bytes_(Shape::kNextStep * args.a_scale_step * sizeof(f32)),
        slots_(lds + wave * Shape::kScaleBytes), lane_(lane) {
    const i32 row = tile_row + Shape::row_of(wave), column = tile_column + Shape::column_of(wave);
    const i32 steps = ceil_div(args.k, kScaleBlock), blocks = ceil_div(args.n, kScaleBlock);
    const u32 first = row * args.a_scale_row + step * args.a_scale_step,
              last = (args.m - 1) * args.a_scale_row + (steps - 1) * args.a_scale_step;
    const bool there = rows_are_scaled_ && row < args.m && step < steps;
    rows_ = {address(args.a_scale) + first * u64(sizeof(f32)),
             there ? (last - first + 1) * u32(sizeof(f32)) : 0};
    // without scales: any memory that is there, whose contents do not matter
    const i32 block = min(column / kScaleBlock, blocks - 1) * steps + step;
    const u64 scales = address(args.b_block_scale) + u32(block) * u64(sizeof(f32));
    weights_ = weights_are_scaled_ ? scales : address(args.b);
  }

  // Nothing to add yet. Apart from the constructor: the first copies need not wait for it.
  HK_DEVICE void clear() {
    static_for<0, kRowBlocks>([&](auto i) { factor_[i] = 0; });
    gemm::clear(sums_);
  }

  // The `Copy`th of the step after those that were copied, over the one that was loaded last.
  template <int Copy, int = 0>
  HK_DEVICE void start_copy() {
    const u32 to = slots_ + slot_ + Copy * arch::kLanes * sizeof(f32);
    const BoundedView src = rows_;
    __builtin_amdgcn_raw_ptr_buffer_load_lds(
        src.descriptor, (__attribute__((address_space(3))) void*)to, sizeof(f32),
        row_ + Copy * arch::kLanes * row_bytes_, 0, 0, 0);
    if constexpr (Copy + 1 == kCopies) {
      advance(rows_, step_bytes_);
      pass();
    }
  }

  // The next step's are the oldest.
  HK_DEVICE void pass() {
    slot_ = slot_ == (Shape::kStages - 1) * kSlotBytes ? 0 : slot_ + kSlotBytes;
  }

  template <int Load>
  HK_DEVICE void load_ahead() {}

  // Starts to load a step's scales, once they are copied; for `end_step`.
  template <int = 0>
  HK_DEVICE void begin_step() {
    const auto* rows = (__attribute__((address_space(3))) const f32*)(slots_ + slot_) + lane_.col;
    static_for<0, kRowBlocks>([&](auto i) { of_row_[i] = rows[32 * i]; });
    load_scalar(of_weights_, weights_);
    weights_ += weights_are_scaled_ ? Shape::kNextStep * sizeof(f32) : 0;
  }

  // Makes the scales those of the sums. The wait for what was loaded with them comes first. They
  // are pinned, or the compiler would put a wait of its own before that one.
  HK_DEVICE void end_step() {
    for (f32& each : of_row_) pin_vector(each);
    pin_scalar(of_weights_);
    const f32 of_weights = weights_are_scaled_ ? of_weights_ : 1;
    static_for<0, kRowBlocks>(
        [&](auto i) { factor_[i] = (rows_are_scaled_ ? of_row_[i] : 1) * of_weights; });
  }

  // Adds what the last step has left to the total, where a step begins.
  template <int Part, int Column, int Row>
  HK_DEVICE void multiply(auto& total, const auto& a, const auto& w) {
    Block& sums = sums_.block[Column][Row];
    if constexpr (Part == 0) {
      // too few instructions since the last product
      if constexpr (kBlocks <= 2 && Column + Row == 0) wait_for_any_sums();
      add(total.block[Column][Row], sums, factor_[Row]);
      fill(sums, 0);
    }
    Format::multiply(sums, a, w);
  }

  HK_DEVICE void add_last(auto& total) const {
    static_for<0, kColumnBlocks>([&](auto column) {
      static_for<0, kRowBlocks>(
          [&](auto row) { add(total.block[column][row], sums_.block[column][row], factor_[row]); });
    });
  }

 private:
  HK_DEVICE static void add(Block& total, const Block& sums, ColumnVector factor) {
    total = __builtin_elementwise_fma(sums, Block(factor), total);
  }
};

}  // namespace hk::gemm
