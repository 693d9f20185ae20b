// What gemm.hip computes, of FP8 codes (e4m3) on both sides: 128 of the depth in a step.
//
// Where every 128 of the depth have scales of their own, a step's products are summed apart, and added to
// the rest, times their scales, while the next step is multiplied (gemm/scales.hpp): on the vector ALU, beside
// the matrix unit.
//
// _s3: a step more is on its way, where a CU has one workgroup and nothing else to do while it waits.
#include "gemm/kernel.hpp"

HK_ARCHES(gfx950);

GEMM(fp8_256x256, 85, Fp8, "e4m3", "e4m3", "vectors", 256, 256, 2, 4, 2, 2);
GEMM(fp8_256x128, 80, Fp8, "e4m3", "e4m3", "vectors", 256, 128, 4, 2, 3, 2);
GEMM(fp8_128x128, 75, Fp8, "e4m3", "e4m3", "vectors", 128, 128, 2, 2, 2, 2);
GEMM(fp8_128x128_s3, 75, Fp8, "e4m3", "e4m3", "vectors", 128, 128, 2, 2, 3, 1);
GEMM(fp8_128x64, 60, Fp8, "e4m3", "e4m3", "vectors", 128, 64, 4, 1, 3, 2);
DEEP(fp8_deep_64x96, 75, Fp8, "e4m3", "e4m3", "vectors", 64, 96, 4, 2, 1);
DEEP(fp8_deep_64x64, 65, Fp8, "e4m3", "e4m3", "vectors", 64, 64, 4, 2, 2);
DEEP(fp8_deep_64x32, 40, Fp8, "e4m3", "e4m3", "vectors", 64, 32, 4, 2, 2);
DEEP(fp8_deep_32x32, 50, Fp8, "e4m3", "e4m3", "vectors", 32, 32, 4, 3, 3);

GEMM(fp8_blocks_256x128, 55, Fp8Blocks, "e4m3", "e4m3", "blocks", 256, 128, 4, 2, 3, 2);
GEMM(fp8_blocks_128x128, 55, Fp8Blocks, "e4m3", "e4m3", "blocks", 128, 128, 2, 2, 2, 2);
GEMM(fp8_blocks_128x128_s3, 55, Fp8Blocks, "e4m3", "e4m3", "blocks", 128, 128, 2, 2, 3, 1);
GEMM(fp8_blocks_128x64, 40, Fp8Blocks, "e4m3", "e4m3", "blocks", 128, 64, 4, 1, 3, 2);
DEEP(fp8_blocks_deep_64x64, 45, Fp8Blocks, "e4m3", "e4m3", "blocks", 64, 64, 4, 2, 1);
DEEP(fp8_blocks_deep_64x32, 40, Fp8Blocks, "e4m3", "e4m3", "blocks", 64, 32, 4, 2, 2);
DEEP(fp8_blocks_deep_32x32, 35, Fp8Blocks, "e4m3", "e4m3", "blocks", 32, 32, 4, 3, 2);
