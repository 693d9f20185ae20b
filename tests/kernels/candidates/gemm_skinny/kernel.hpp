// One workgroup of the product of few rows: the loop, the waves' sums, and C.
#pragma once

#include "hk/kernel_info.hpp"
#include "stream.hpp"

namespace hk::gemm_skinny {

using Half = __UINT16_TYPE__;  // the bits of a 16-bit element

// Every wave has all of a tile of `Columns`, and every `Waves`-th step, of which `Ahead` are on their
// way or in use.
template <class Rows_, int Columns, int Waves, int Ahead>
struct Shape {
  using Rows = Rows_;
  using Format = typename Rows::Elements;
  static constexpr int kRows = Rows::kRows, kPairs = 16 / kRows;  // rows of the operand for one
  static constexpr int kColumns = Columns, kGroups = Columns / 16, kWaves = Waves, kAhead = Ahead;
  static constexpr int kThreads = Waves * arch::kLanes;
  static constexpr int kLdsBytes = Waves * kGroups * arch::kLanes * sizeof(Sums);
  static constexpr int kStored = ceil_div(kRows * Columns, kThreads);  // elements of a thread
};

// The sums of a wave over its share of the steps.
template <class Shape>
class Wave {
  using Stream = gemm_skinny::Stream<typename Shape::Rows, Shape::kGroups, Shape::kWaves>;
  static constexpr int kAhead = Shape::kAhead;

 public:
  Sums sums[Shape::kGroups];

  HK_DEVICE Wave(const GemmArgs& args, i32 row, i32 column, i32 wave, Lane lane)
      : steps_(ceil_div(max(ceil_div(args.k, Shape::Format::kStep) - wave, 0), Shape::kWaves)),
        bytes_(gemm::depth_bytes<Shape>(args) - wave * kStepBytes),
        stream_(args, row, column, wave, lane) {
    i32 ahead = steps_;
    static_for<0, kAhead>([&](auto stage) {
      stream_.load(loaded_[stage], ahead--);
      fence_schedule();
    });
    for (auto& each : sums) each = 0;
    ahead_ = ahead;
  }

  HK_DEVICE void run() {
    if (steps_ <= 0) return;
    for (; steps_ > kAhead; steps_ -= kAhead) round<false>();
    round<true>();
  }

 private:
  i32 steps_, bytes_, ahead_;
  Stream stream_;
  typename Stream::Step loaded_[kAhead];

  // A step in every place of the ring. The last round ends with the wave's last step.
  template <bool kLast, int Stage = 0>
  HK_DEVICE void round() {
    if constexpr (Stage < kAhead) {
      if (kLast && Stage > 0 && Stage >= steps_) return;
      stream_.template multiply<kLast>(sums, loaded_[Stage], bytes_);
      bytes_ -= Shape::kWaves * kStepBytes;
      fence_schedule();
      if constexpr (!kLast) stream_.load(loaded_[Stage], ahead_--);
      fence_schedule();
      round<kLast, Stage + 1>();
    }
  }
};

// An element of C, with what it is scaled by and added to: loaded before the loop, which waits for
// none of it. A scale that is not there is 1.
struct Element {
  i32 row, column;  // of the tile
  bool there;
  f32 scale_a = 1, scale_b = 1;
  u32 bias = 0;  // in its type

  HK_DEVICE f32 finish(f32 sum, i32 bias_type) const {
    f32 added = bit_cast<f32>(bias);
    if (bias_type == kGemmBf16) added = bit_cast<f32>(bias << 16);
    if (bias_type == kGemmF16) added = f32(bit_cast<Vec<f16, 2>>(bias)[0]);
    return sum * scale_a * scale_b + added;
  }
};

template <class Shape>
HK_DEVICE Element element_of(const GemmArgs& args, i32 row, i32 column, i32 index) {
  Element found{index / Shape::kColumns, index % Shape::kColumns, false};
  const i32 m = row + found.row, n = column + found.column;
  found.there = index < Shape::kRows * Shape::kColumns && m < args.m && n < args.n;
  if (found.there) {
    if (args.a_scale) found.scale_a = args.a_scale[m * args.a_scale_row];
    if (args.b_scale) found.scale_b = args.b_scale[n];
    if (args.bias && args.bias_type == kGemmF32) found.bias = ((const u32*)args.bias)[n];
    if (args.bias && args.bias_type != kGemmF32) found.bias = ((const Half*)args.bias)[n];
  }
  return found;
}

// The sums of all waves, in their order, and of the rows of the operand that make one.
template <class Shape>
HK_DEVICE f32 sum_of(u32 lds, const Element& element) {
  const auto* words = (const __attribute__((address_space(3))) f32*)lds;
  const i32 lane = element.row / 4 * 16 + element.column % 16;
  f32 parts[Shape::kWaves * Shape::kPairs];
  static_for<0, Shape::kWaves>([&](auto wave) {
    static_for<0, Shape::kPairs>([&](auto i) {
      const i32 block = wave * Shape::kGroups + element.column / 16;
      parts[wave * Shape::kPairs + i] =
          words[(block * arch::kLanes + i * 32 + lane) * 4 + element.row % 4];
    });
  });
  f32 sum = 0;
  for (const f32 part : parts) sum += part;
  return sum;
}

template <class Shape>
HK_DEVICE void gemm_skinny(const GemmArgs& args) {
  extern __attribute__((shared)) char dynamic_lds[];
  const u32 lds = shared_address(dynamic_lds);
  const i32 wave = this_wave();
  const Lane lane = this_lane();
  const i32 columns = ceil_div(args.n, Shape::kColumns),
            tiles = ceil_div(args.m, Shape::kRows) * columns;
  const i32 tile = neighbours_on_one_xcd(__builtin_amdgcn_workgroup_id_x(), tiles);
  const i32 row = tile / columns * Shape::kRows, column = tile % columns * Shape::kColumns;

  Wave<Shape> product(args, row, column, wave, lane);
  Element elements[Shape::kStored];
  static_for<0, Shape::kStored>([&](auto i) {
    elements[i] =
        element_of<Shape>(args, row, column, i * Shape::kThreads + wave * arch::kLanes + lane.id);
  });
  product.run();
  gemm::wait_for_any_sums();

  auto* own = (__attribute__((address_space(3))) Sums*)lds + wave * Shape::kGroups * arch::kLanes;
  static_for<0, Shape::kGroups>(
      [&](auto group) { own[group * arch::kLanes + lane.id] = product.sums[group]; });
  synchronize();
  for (const Element& each : elements) {
    if (!each.there) continue;
    const f32 value = each.finish(sum_of<Shape>(lds, each), args.bias_type);
    const i64 at = (row + each.row) * args.c_row + column + each.column;
    if (args.c_type == kGemmBf16)
      ((bf16*)args.c)[at] = bf16(value);
    else if (args.c_type == kGemmF16)
      ((f16*)args.c)[at] = f16(value);
    else
      ((f32*)args.c)[at] = value;
  }
}

template <class Shape>
constexpr KernelInfo<GemmFacts> info(const GemmFacts& facts) {
  return {Shape::kRows,
          Shape::kColumns,
          Shape::Format::kStep,
          Shape::kLdsBytes,
          2 * Shape::kRows * Shape::kColumns * Shape::Format::kStep,
          "gemm",
          "gemm",
          facts,
          {1, 0}};
}

}  // namespace hk::gemm_skinny
