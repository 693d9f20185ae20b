// The product of gemm.hip for 16-bit activations and weights in FP8 codes (e4m3). The codes are
// widened between LDS or memory and the matrix unit. A step is 128 of the depth, and its
// activations take twice the space of its weights.
#include "gemm/kernel.hpp"

HK_ARCHES(gfx950);

#define FP8_WEIGHTS(T) fp8_##T, Widened<hk::T>, #T, "e4m3", "vectors"
#define FP8_WEIGHTS_BLOCKS(T) fp8_##T##_blocks, WidenedBlocks<hk::T>, #T, "e4m3", "blocks"

WIDE_16_BIT(FP8_WEIGHTS, 80, 128, 256, 2, 4, 2, 2);
DEEP_16_BIT(FP8_WEIGHTS, 75, 64, 96, 4, 2, 1);
DEEP_16_BIT(FP8_WEIGHTS, 70, 64, 64, 4, 2, 1);
DEEP_16_BIT(FP8_WEIGHTS, 55, 64, 32, 4, 2, 1);
DEEP_16_BIT(FP8_WEIGHTS, 45, 32, 32, 4, 2, 2);

WIDE_16_BIT(FP8_WEIGHTS_BLOCKS, 70, 128, 256, 2, 4, 2, 2);
DEEP_16_BIT(FP8_WEIGHTS_BLOCKS, 60, 64, 64, 4, 2, 1);
DEEP_16_BIT(FP8_WEIGHTS_BLOCKS, 50, 64, 32, 4, 2, 1);
DEEP_16_BIT(FP8_WEIGHTS_BLOCKS, 40, 32, 32, 4, 2, 2);
