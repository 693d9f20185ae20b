// The product of gemm.hip for bf16 activations and weights in codes of MX formats.
//
// The codes are packed as in gemm_mx.hip (hk/args/gemm.hpp). On their way to the matrix unit they
// are widened and scaled: 2 codes of 4 or 8 bits by an instruction, or 32 of 6. bf16 has all of
// these values, but for a few of e4m3 below 2^-126. float16 has not, so it has no kernels.
//
// A step is 128 of the depth, and its activations take 2 to 4 times the space of its weights. So the
// tiles of few rows are wide: more weights are on their way beside the same activations. The bound
// of large launches is the matrix unit at the rate of bf16, that of few rows is the memory.
//
// Choices: no tile of 32 x 128 for e4m3, whose weights on their way do not fit in registers. No tile
// of 256 x 256: a lane's 32 codes of a row go with 16 registers of activations.
#include "gemm/kernel.hpp"

HK_ARCHES(gfx950);

#define MXFP4() mxfp4_bf16, MxWidened<hk::E2m1>, "bf16", "e2m1", "mx_weights"
#define MXFP6_E2M3() mxfp6_e2m3_bf16, MxWidened<hk::E2m3>, "bf16", "e2m3", "mx_weights"
#define MXFP6_E3M2() mxfp6_e3m2_bf16, MxWidened<hk::E3m2>, "bf16", "e3m2", "mx_weights"
#define MXFP8() mxfp8_bf16, MxWidened<hk::E4m3>, "bf16", "e4m3", "mx_weights"

WIDE(MXFP4, 75, 128, 256, 2, 4, 2, 2);
WIDE(MXFP4, 70, 128, 128, 2, 2, 2, 1);
DEEP(MXFP4, 65, 32, 128, 4, 2, 2);
DEEP(MXFP4, 60, 32, 64, 4, 2, 2);
DEEP(MXFP4, 35, 32, 32, 4, 2, 2);

WIDE(MXFP6_E2M3, 85, 128, 256, 2, 4, 2, 2);
WIDE(MXFP6_E2M3, 80, 128, 128, 2, 2, 2, 1);
DEEP(MXFP6_E2M3, 70, 32, 128, 4, 2, 2);
DEEP(MXFP6_E2M3, 60, 32, 64, 4, 2, 2);
DEEP(MXFP6_E2M3, 35, 32, 32, 4, 2, 2);

WIDE(MXFP6_E3M2, 85, 128, 256, 2, 4, 2, 2);
WIDE(MXFP6_E3M2, 80, 128, 128, 2, 2, 2, 1);
DEEP(MXFP6_E3M2, 70, 32, 128, 4, 2, 2);
DEEP(MXFP6_E3M2, 60, 32, 64, 4, 2, 2);
DEEP(MXFP6_E3M2, 35, 32, 32, 4, 2, 2);

WIDE(MXFP8, 80, 128, 256, 2, 4, 2, 2);
WIDE(MXFP8, 70, 128, 128, 2, 2, 2, 1);
DEEP(MXFP8, 55, 32, 64, 4, 2, 2);
DEEP(MXFP8, 35, 32, 32, 4, 2, 2);
