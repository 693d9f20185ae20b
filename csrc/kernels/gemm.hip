// C = A B^T, times the scales of its rows and columns, plus a bias: A [m, k], B [n, k] packed, C [m, n],
// summed in float32. See hk/args/gemm.hpp for the argument.
//
// A workgroup computes a tile of C; a wave a part of it, as the transpose: a lane owns a row of C, and
// its columns are neighbours in memory. The depth comes in steps of 128 bytes of a weight's row, which all
// waves copy to LDS together.
//
//   start copying the first steps to LDS | wait for step 0 | barrier | read its first part
//   for each step:
//     for each part of it:
//       read the next part, beside the matrix instructions on this one; before the last of them:
//         wait for the next step's copies | barrier | start copying a step to where this one was
//   if the depth is split: leave the sums in memory; the last to arrive adds all up
//   epilogue: scale, add, round to the type of C, store
#include "gemm/workgroup.hpp"
#include "hk/kernel_info.hpp"

HK_ARCHES(gfx950);

namespace hk::gemm {

// What the launch must know (hk_backend/kernels/toolchain/build.py).
template <class Shape>
constexpr KernelInfo<GemmFacts> info(const GemmFacts& facts, int useful_percent) {
  return {Shape::kTileRows,
          Shape::kTileColumns,
          Shape::kStep,
          Shape::kLdsBytes,
          2 * Shape::kWaveRows * Shape::kWaveColumns * Shape::kStep,
          "ceil_div(m, tile_rows) * ceil_div(n, tile_columns) * splits",
          "gemm",
          facts,
          {Shape::kWavesPerSimd, useful_percent}};
}

}  // namespace hk::gemm

// A line for each, from the tiles of large launches to those of few rows: a bar (hk::Bars), the format,
// element types, and what hk::gemm::Shape wants: rows, columns, waves for either, stages, waves that
// share a SIMD.
#define GEMM(name, percent, format, a, b, ...)                           \
  using name##_shape = hk::gemm::Shape<hk::gemm::format, __VA_ARGS__>;   \
  HK_KERNEL(name##_shape::kThreads, name##_shape::kWavesPerSimd)         \
  gemm_##name(hk::GemmArgs args) { hk::gemm::gemm<name##_shape>(args); } \
  HK_KERNEL_INFO(gemm_##name, hk::gemm::info<name##_shape>({a, b, "vectors"}, percent))

GEMM(bf16_256x256, 85, SixteenBit<hk::bf16>, "bf16", "bf16", 256, 256, 2, 4, 2, 2);
GEMM(bf16_256x128, 80, SixteenBit<hk::bf16>, "bf16", "bf16", 256, 128, 4, 2, 3, 2);
GEMM(bf16_128x128, 75, SixteenBit<hk::bf16>, "bf16", "bf16", 128, 128, 2, 2, 2, 2);
GEMM(bf16_128x64, 60, SixteenBit<hk::bf16>, "bf16", "bf16", 128, 64, 4, 1, 3, 2);
GEMM(bf16_64x64, 40, SixteenBit<hk::bf16>, "bf16", "bf16", 64, 64, 2, 2, 4, 2);
GEMM(bf16_32x64, 40, SixteenBit<hk::bf16>, "bf16", "bf16", 32, 64, 1, 2, 6, 1);
GEMM(bf16_32x32, 35, SixteenBit<hk::bf16>, "bf16", "bf16", 32, 32, 1, 1, 6, 1);

GEMM(f16_256x256, 85, SixteenBit<hk::f16>, "f16", "f16", 256, 256, 2, 4, 2, 2);
GEMM(f16_256x128, 80, SixteenBit<hk::f16>, "f16", "f16", 256, 128, 4, 2, 3, 2);
GEMM(f16_128x128, 75, SixteenBit<hk::f16>, "f16", "f16", 128, 128, 2, 2, 2, 2);
GEMM(f16_128x64, 60, SixteenBit<hk::f16>, "f16", "f16", 128, 64, 4, 1, 3, 2);
GEMM(f16_64x64, 40, SixteenBit<hk::f16>, "f16", "f16", 64, 64, 2, 2, 4, 2);
GEMM(f16_32x64, 40, SixteenBit<hk::f16>, "f16", "f16", 32, 64, 1, 2, 6, 1);
GEMM(f16_32x32, 35, SixteenBit<hk::f16>, "f16", "f16", 32, 32, 1, 1, 6, 1);

GEMM(fp8_256x256, 85, Fp8, "e4m3", "e4m3", 256, 256, 2, 4, 2, 2);
GEMM(fp8_256x128, 80, Fp8, "e4m3", "e4m3", 256, 128, 4, 2, 3, 2);
GEMM(fp8_128x128, 75, Fp8, "e4m3", "e4m3", 128, 128, 2, 2, 2, 2);
GEMM(fp8_128x64, 60, Fp8, "e4m3", "e4m3", 128, 64, 4, 1, 3, 2);
GEMM(fp8_64x64, 40, Fp8, "e4m3", "e4m3", 64, 64, 2, 2, 4, 2);
GEMM(fp8_32x64, 40, Fp8, "e4m3", "e4m3", 32, 64, 1, 2, 6, 1);
GEMM(fp8_32x32, 35, Fp8, "e4m3", "e4m3", 32, 32, 1, 1, 6, 1);

// The activations of a step take twice the space of the weights.
GEMM(fp8_bf16_128x256, 80, Widened<hk::bf16>, "bf16", "e4m3", 128, 256, 2, 4, 2, 2);
GEMM(fp8_bf16_64x64, 45, Widened<hk::bf16>, "bf16", "e4m3", 64, 64, 2, 2, 3, 2);
GEMM(fp8_bf16_32x64, 45, Widened<hk::bf16>, "bf16", "e4m3", 32, 64, 1, 2, 4, 1);

GEMM(fp8_f16_128x256, 80, Widened<hk::f16>, "f16", "e4m3", 128, 256, 2, 4, 2, 2);
GEMM(fp8_f16_64x64, 45, Widened<hk::f16>, "f16", "e4m3", 64, 64, 2, 2, 3, 2);
GEMM(fp8_f16_32x64, 45, Widened<hk::f16>, "f16", "e4m3", 32, 64, 1, 2, 4, 1);
