// Scales of parts of the depth, as one wave sees them.
//
// The waves (wave.hpp, deep_wave.hpp) treat all kinds alike:
//   kCopies, start_copy       copies to LDS, or loads, that belong to those of a step; deep waves
//                             name the place in the ring of the step (Stage)
//   clear                     before the first step
//   kLoads, load_ahead        loads of the next step's to registers, once this step has its own
//   begin_step, end_step      where the first and the last part of a step are there
//   pass                      in place of the copies, where no step is left to copy
//   multiply                  one product of a part, in the order of the parts
//   add_last                  after the last step
#pragma once

#include "stream.hpp"

namespace hk::gemm {

// Whole rows have scales, or none: products go straight to where all of them are summed.
template <class Shape, Scales = Shape::Format::kScales>
struct StepScales {
  static constexpr int kCopies = 0, kLoads = 0;

  HK_DEVICE StepScales(const GemmArgs&, i32, i32, i32, u32, i32, Lane) {}
  template <int Copy, int Stage = 0>
  HK_DEVICE void start_copy() {}
  HK_DEVICE void clear() {}
  HK_DEVICE void pass() {}
  template <int Load>
  HK_DEVICE void load_ahead() {}
  template <int Stage = 0>
  HK_DEVICE void begin_step() {}
  HK_DEVICE void end_step() {}
  HK_DEVICE void add_last(auto&) {}

  template <int Part, int Column, int Row>
  HK_DEVICE void multiply(auto& total, const auto& a, const auto& w) {
    Shape::Format::multiply(total.block[Column][Row], a, w);
  }
};

}  // namespace hk::gemm
