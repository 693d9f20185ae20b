// Kernels of gemm, in tables: one line of a source (gemm.hip, gemm_fp8.hip, gemm_fp8_weights.hip)
// for each tile of a format. fp16 follows from bf16 (hk/table.hpp).
//
//   WIDE   for large launches
//   DEEP   for few rows, or for tiles that are too few for all CUs
//
// A line has a bar (hk::Bars), the rows and columns of a tile, and the other sizes of a Shape or a
// DeepShape (shape.hpp). With _16_BIT it declares a kernel for each 16-bit type. A source defines
// its formats as macros: the part of a kernel's name, the format, the element types, and what has
// scales (GemmFacts).
#pragma once

#include "hk/kernel_info.hpp"
#include "hk/table.hpp"
#include "workgroup.hpp"

namespace hk::gemm {

// Facts and sizes that the launch must know (hk_backend/lab/toolchain/build.py).
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

#define WIDE(FORMAT, bar, ...) GEMM(Shape, , FORMAT(), bar, __VA_ARGS__)
#define WIDE_16_BIT(FORMAT, bar, ...) \
  HK_FOR_16_BIT_TYPES(GEMM_16_BIT, Shape, , FORMAT, bar, __VA_ARGS__)
#define DEEP(FORMAT, bar, ...) GEMM(DeepShape, deep_, FORMAT(), bar, __VA_ARGS__)
#define DEEP_16_BIT(FORMAT, bar, ...) \
  HK_FOR_16_BIT_TYPES(GEMM_16_BIT, DeepShape, deep_, FORMAT, bar, __VA_ARGS__)
// The same tile as another line's, with a step more on its way: the kernel's name ends in _s3.
#define WIDE_S3(FORMAT, bar, ...) GEMM_SUFFIX(_s3, Shape, , FORMAT(), bar, __VA_ARGS__)

#define GEMM_16_BIT(T, Shape, kind, FORMAT, bar, ...) GEMM(Shape, kind, FORMAT(T), bar, __VA_ARGS__)
#define GEMM(...) GEMM_SUFFIX(, __VA_ARGS__)
#define GEMM_SUFFIX(...) GEMM_NAME(__VA_ARGS__)
#define GEMM_NAME(suffix, Shape, kind, format, Format, a, b, scales, bar, rows, columns, ...) \
  GEMM_KERNEL(format##_##kind##rows##x##columns##suffix, bar, a, b, scales,                   \
              hk::gemm::Shape<hk::gemm::Format, rows, columns, __VA_ARGS__>)
#define GEMM_KERNEL(name, bar, a, b, scales, ...)                        \
  using name##_shape = __VA_ARGS__;                                      \
  HK_KERNEL(name##_shape::kThreads, name##_shape::kWavesPerSimd)         \
  gemm_##name(hk::GemmArgs args) { hk::gemm::gemm<name##_shape>(args); } \
  HK_KERNEL_INFO(gemm_##name, hk::gemm::info<name##_shape>({a, b, scales}, bar));
