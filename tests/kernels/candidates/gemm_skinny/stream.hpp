// The steps of one wave on their way from memory to registers.
#pragma once

#include "rows.hpp"

namespace hk::gemm_skinny {

inline constexpr int kGroupBytes = 16 * kStepBytes;  // of 16 rows of weights in a step

// Every `Waves`-th step. Weights come 16 rows after 16 rows, each byte once.
template <class Rows, int Groups, int Waves>
struct Stream {
  struct Step {
    Words a[Rows::kLoads];
    Line w[Groups];
  };

  RowSpan a, w;  // from the next step's first byte
  u32 row, group_bytes;
  Rows rows;
  Lane lane;

  HK_DEVICE Stream(const GemmArgs& args, i32 first_row, i32 column, i32 step, Lane lane)
      : a{}, w{}, rows(lane), lane(lane) {
    constexpr int kBits = gemm::kElementBits<typename Rows::Elements::A>;
    const u32 row_bytes = args.a_row * (kBits / 8), start = step * kStepBytes,
              used = ceil_div(args.k * (kBits / 8), 16) * 16;
    a.base = address(args.a) + wide_mul(first_row, row_bytes) + start;
    a.bytes = clamp_scalar((args.k == 0 ? 0 : args.m) - first_row, Rows::kRows) * row_bytes;
    a.bytes -= clamp_scalar(row_bytes - used + start, a.bytes);
    row = rows.row * row_bytes;

    group_bytes = ceil_div(args.k, Rows::Elements::kStep) * kGroupBytes;
    const i32 group = column / 16;
    w.base = address(args.b) + wide_mul(group, group_bytes) + step * kGroupBytes;
    w.bytes = clamp_scalar(ceil_div(args.n, 16) - group, Groups) * group_bytes;
    w.bytes -= clamp_scalar(step * kGroupBytes, w.bytes);
  }

  // Past the last step, where `left` is not positive, it loads no weights.
  HK_DEVICE void load(Step& dst, i32 left) {
    w.bytes = left > 0 ? w.bytes : 0;
    pin_scalar(w.bytes);
    const BoundedView from_a = a, from_w = w;
    static_for<0, Rows::kLoads>(
        [&](auto i) { dst.a[i] = load_words<4>(from_a, row + rows.bytes[i]); });
    static_for<0, Groups>([&](auto group) {
      static_for<0, 2>([&](auto half) {
        const u32 at = group * group_bytes + half * (kGroupBytes / 2) + lane.id * 16;
        dst.w[group].halves[half] = load_words<4>(from_w, at);
      });
    });
    gemm::advance(a, Waves * kStepBytes);
    gemm::advance(w, Waves * kGroupBytes);
  }

  // `bytes` of a row are left where the step begins. What the lane has past them may be anything:
  // in the wave's last steps (kLast) it is cleared.
  template <bool kLast>
  HK_DEVICE void multiply(Sums (&sums)[Groups], Step& step, i32 bytes) const {
    if constexpr (kLast)
      static_for<0, Rows::kLoads>(
          [&](auto i) { gemm::keep<kStepBytes>(step.a[i], bytes - rows.bytes[i], bytes); });
    const auto operand = rows.operand(step.a);
    static_for<0, Groups>([&](auto group) { rows.multiply(sums[group], operand, step.w[group]); });
  }
};

}  // namespace hk::gemm_skinny
