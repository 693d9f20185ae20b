// What gemm.hip computes, of 16-bit activations and weights in FP8 codes (e4m3), which are widened between LDS
// or memory and the matrix unit: 128 of the depth in a step, whose activations take twice the space of
// the weights.
#include "gemm/kernel.hpp"

HK_ARCHES(gfx950);

GEMM(fp8_bf16_128x256, 80, Fp8ToBf16, "bf16", "e4m3", "vectors", 128, 256, 2, 4, 2, 2);
DEEP(fp8_bf16_deep_64x96, 75, Fp8ToBf16, "bf16", "e4m3", "vectors", 64, 96, 4, 2, 1);
DEEP(fp8_bf16_deep_64x64, 70, Fp8ToBf16, "bf16", "e4m3", "vectors", 64, 64, 4, 2, 1);
DEEP(fp8_bf16_deep_64x32, 55, Fp8ToBf16, "bf16", "e4m3", "vectors", 64, 32, 4, 2, 1);
DEEP(fp8_bf16_deep_32x32, 45, Fp8ToBf16, "bf16", "e4m3", "vectors", 32, 32, 4, 2, 2);

GEMM(fp8_bf16_blocks_128x256, 70, Fp8BlocksToBf16, "bf16", "e4m3", "blocks", 128, 256, 2, 4, 2, 2);
DEEP(fp8_bf16_blocks_deep_64x64, 60, Fp8BlocksToBf16, "bf16", "e4m3", "blocks", 64, 64, 4, 2, 1);
DEEP(fp8_bf16_blocks_deep_64x32, 50, Fp8BlocksToBf16, "bf16", "e4m3", "blocks", 64, 32, 4, 2, 1);
DEEP(fp8_bf16_blocks_deep_32x32, 40, Fp8BlocksToBf16, "bf16", "e4m3", "blocks", 32, 32, 4, 2, 2);

GEMM(fp8_f16_128x256, 80, Fp8ToF16, "f16", "e4m3", "vectors", 128, 256, 2, 4, 2, 2);
DEEP(fp8_f16_deep_64x96, 75, Fp8ToF16, "f16", "e4m3", "vectors", 64, 96, 4, 2, 1);
DEEP(fp8_f16_deep_64x64, 70, Fp8ToF16, "f16", "e4m3", "vectors", 64, 64, 4, 2, 1);
DEEP(fp8_f16_deep_64x32, 55, Fp8ToF16, "f16", "e4m3", "vectors", 64, 32, 4, 2, 1);
DEEP(fp8_f16_deep_32x32, 45, Fp8ToF16, "f16", "e4m3", "vectors", 32, 32, 4, 2, 2);

GEMM(fp8_f16_blocks_128x256, 70, Fp8BlocksToF16, "f16", "e4m3", "blocks", 128, 256, 2, 4, 2, 2);
DEEP(fp8_f16_blocks_deep_64x64, 60, Fp8BlocksToF16, "f16", "e4m3", "blocks", 64, 64, 4, 2, 1);
DEEP(fp8_f16_blocks_deep_64x32, 50, Fp8BlocksToF16, "f16", "e4m3", "blocks", 64, 32, 4, 2, 1);
DEEP(fp8_f16_blocks_deep_32x32, 40, Fp8BlocksToF16, "f16", "e4m3", "blocks", 32, 32, 4, 2, 2);
