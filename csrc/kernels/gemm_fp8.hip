// The product of gemm.hip for FP8 codes (e4m3) on both sides: a step is 128 of the depth.
//
// A format may have scales for every 128 of the depth. Then a step's products are summed apart.
// While the next step is multiplied, the vector ALU adds them to the rest, times their scales
// (gemm/scales.hpp).
//
// _s3: a step more is on its way, where a CU has one workgroup and nothing else to do while it
// waits.
#include "gemm/kernel.hpp"

HK_ARCHES(gfx950);

#define FP8() fp8, Fp8, "e4m3", "e4m3", "vectors"
#define FP8_BLOCKS() fp8_blocks, Fp8Blocks, "e4m3", "e4m3", "blocks"

WIDE(FP8, 85, 256, 256, 2, 4, 2, 2);
WIDE(FP8, 80, 256, 128, 4, 2, 3, 2);
WIDE(FP8, 75, 128, 128, 2, 2, 2, 2);
WIDE_S3(FP8, 75, 128, 128, 2, 2, 3, 1);
WIDE(FP8, 60, 128, 64, 4, 1, 3, 2);
DEEP(FP8, 75, 64, 96, 4, 2, 1);
DEEP(FP8, 65, 64, 64, 4, 2, 2);
DEEP(FP8, 40, 64, 32, 4, 2, 2);
DEEP(FP8, 50, 32, 32, 4, 3, 3);

WIDE(FP8_BLOCKS, 55, 256, 128, 4, 2, 3, 2);
WIDE(FP8_BLOCKS, 55, 128, 128, 2, 2, 2, 2);
WIDE_S3(FP8_BLOCKS, 55, 128, 128, 2, 2, 3, 1);
WIDE(FP8_BLOCKS, 40, 128, 64, 4, 1, 3, 2);
DEEP(FP8_BLOCKS, 45, 64, 64, 4, 2, 1);
DEEP(FP8_BLOCKS, 40, 64, 32, 4, 2, 2);
DEEP(FP8_BLOCKS, 35, 32, 32, 4, 3, 2);
