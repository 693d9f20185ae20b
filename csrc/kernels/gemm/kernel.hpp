// A gemm kernel and what its launch must know, in a line of a source (gemm.hip, gemm_fp8.hip,
// gemm_fp8_weights.hip): a bar (hk::Bars), the format, element types, what has scales, and
//   GEMM   of large launches, what hk::gemm::Shape wants: rows, columns, waves for either, stages, waves
//          that share a SIMD
//   DEEP   of few rows, or of tiles that are too few for all CUs, what hk::gemm::DeepShape wants: rows,
//          columns, waves, steps ahead, waves that share a SIMD
#pragma once

#include "hk/kernel_info.hpp"
#include "workgroup.hpp"

namespace hk::gemm {

// What the launch must know (hk_backend/kernels/toolchain/build.py).
template <class Shape>
constexpr KernelInfo<GemmFacts> info(const GemmFacts& facts, int useful_percent) {
  return {Shape::kTileRows,
          Shape::kTileColumns,
          Shape::kStep,
          Shape::kLdsBytes,
          2 * Shape::kWaveRows * Shape::kWaveColumns * Shape::kStep,
          "gemm",
          "gemm",
          facts,
          {Shape::kWavesPerSimd, useful_percent}};
}

}  // namespace hk::gemm

#define GEMM(name, percent, format, a, b, scales, ...) \
  GEMM_SHAPE(name, percent, a, b, scales, hk::gemm::Shape<hk::gemm::format, __VA_ARGS__>)
#define DEEP(name, percent, format, a, b, scales, ...) \
  GEMM_SHAPE(name, percent, a, b, scales, hk::gemm::DeepShape<hk::gemm::format, __VA_ARGS__>)
#define GEMM_SHAPE(name, percent, a, b, scales, ...)                     \
  using name##_shape = __VA_ARGS__;                                      \
  HK_KERNEL(name##_shape::kThreads, name##_shape::kWavesPerSimd)         \
  gemm_##name(hk::GemmArgs args) { hk::gemm::gemm<name##_shape>(args); } \
  HK_KERNEL_INFO(gemm_##name, hk::gemm::info<name##_shape>({a, b, scales}, percent))
