// C = A B^T of up to 8 or 16 rows, times the scales of its rows and columns, plus a bias: what
// gemm.hip and gemm_fp8.hip compute, from the same argument (hk/args/gemm.hpp), unsplit.
//
// Candidates that no planner selects. A matrix instruction with 4:2 sparse A has 16 rows at twice
// the depth. Two of them are one row of activations here: one has the first, one the last two of
// every four elements. So all rows have work for 8 rows of activations. Dense twins, for 16 rows,
// differ in nothing else, and show what the sparse instruction is worth.
//
// Bounds, for each CU and 1 KiB of weights: 8 clocks of a SIMD's matrix unit (dense 16), two issues,
// 16 clocks of the address path, and 75 clocks of its share of HBM. So memory bounds both.
//
//   start loading the first steps
//   for each step of this wave, every fourth:
//     make the operand of the activations | multiply 16 columns after 16 columns
//     start loading a step to where this one was
//   add up the waves' sums through LDS | scale, add, round, store
//
// Activations, too, go from memory to registers: a step takes 16 bytes of a lane, or 32. Weights
// lie in memory as both instructions take them. Tiles are so narrow that all CUs have one unsplit.
#include "gemm_skinny/kernel.hpp"

HK_ARCHES(gfx950);

#define SKINNY(name, Rows, Elements, type, columns)                                            \
  using name##_shape =                                                                         \
      hk::gemm_skinny::Shape<hk::gemm_skinny::Rows<hk::gemm_skinny::Elements>, columns, 4, 4>; \
  HK_KERNEL(name##_shape::kThreads, 1)                                                         \
  name(hk::GemmArgs args) { hk::gemm_skinny::gemm_skinny<name##_shape>(args); }                \
  HK_KERNEL_INFO(name, hk::gemm_skinny::info<name##_shape>({type, type, "vectors"}));

SKINNY(gemm_bf16_sparse_8x32, Sparse, Bf16, "bf16", 32)
SKINNY(gemm_bf16_sparse_8x16, Sparse, Bf16, "bf16", 16)
SKINNY(gemm_bf16_dense_16x32, Dense, Bf16, "bf16", 32)
SKINNY(gemm_bf16_dense_16x16, Dense, Bf16, "bf16", 16)
SKINNY(gemm_fp8_sparse_8x32, Sparse, Fp8, "e4m3", 32)
SKINNY(gemm_fp8_sparse_8x16, Sparse, Fp8, "e4m3", 16)
SKINNY(gemm_fp8_dense_16x32, Dense, Fp8, "e4m3", 32)
SKINNY(gemm_fp8_dense_16x16, Dense, Fp8, "e4m3", 16)
