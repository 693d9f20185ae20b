// C = A B^T: A [m, k], B [n, k], C [m, n], summed in float32. See hk/args/gemm.hpp for the argument.
//
// A workgroup of 8 waves computes 256 x 256 of C; a wave 64 rows x 128 columns, as the transpose:
// a lane owns a row of C, and its columns are neighbours in memory. The depth comes in steps of 64,
// which all waves copy to LDS together.
//
//   start copying steps 0 and 1 to LDS
//   for each step:
//     wait for its copies | barrier
//     4 times:  start loading the next fragments beside 8 matrix instructions on these
//     barrier | start copying the step after next where this one was
//   epilogue, block by block: round to the type of C, store
//
// Choices:
//   - Two stages and two barriers a step: simple and correct, the language's second customer. A fast
//     GEMM is another schedule on the same tiles.
//   - Any m, n, k. Rows past m or n read zeros (descriptor bounds) and are not stored; depth past k is
//     masked, in a last step of its own, so that the steady loop compares nothing.
//   - What a kernel does to the sums is its epilogue (gemm/epilogue.hpp): a policy, no branch.
//   - Copies past the last step are left to run and thrown away: no branch in the loop.
//   - Template arguments: the shape (element types of A and B, tiles, stages: gemm/shape.hpp) and the
//     epilogue (element type of C). At run time: sizes and strides.
#include "gemm/workgroup.hpp"
#include "hk/kernel_info.hpp"

HK_ARCHES(gfx950);

namespace hk::gemm {

template <class T>
using Kernel = Shape<arch::Current, T, T>;

// What the launch must know (hk_backend/kernels/toolchain/build.py).
template <class Shape>
constexpr KernelInfo<GemmFacts> info(const GemmFacts& facts) {
  using Size = Sizes<Shape>;
  return {Shape::kTileRows,
          Shape::kTileColumns,
          Shape::kStep,
          Size::kLdsBytes,
          2 * Size::kWaveRows * Size::kWaveColumns * Shape::kStep,
          "ceil_div(m, tile_rows) * ceil_div(n, tile_columns)",
          "gemm",
          facts,
          {Shape::kWavesPerSimd, 70}};
}

}  // namespace hk::gemm

#define GEMM(name, T)                                                             \
  using name##_shape = hk::gemm::Kernel<hk::T>;                                   \
  HK_KERNEL(hk::gemm::Sizes<name##_shape>::kThreads, name##_shape::kWavesPerSimd) \
  gemm_##name(hk::GemmArgs args) {                                                \
    hk::gemm::gemm<name##_shape>(args, hk::gemm::Epilogue<hk::T>{});              \
  }                                                                               \
  HK_KERNEL_INFO(gemm_##name, hk::gemm::info<name##_shape>({#T, #T, #T}))

GEMM(bf16, bf16);
GEMM(f16, f16);
