// The product of gemm.hip for codes of MX formats on both sides. Each 32 of the depth have a scale,
// by which the matrix unit multiplies on the way (gemm/mx_scales.hpp).
//
// Both sides are packed (hk/args/gemm.hpp). A step is 256 or 128 of the depth. The scales of a step
// go past the LDS: 1/16 to 1/32 of the operands' bytes.
//
// The bound of large launches is the matrix unit: 32 clocks for 32x32x64 where both sides have 4 or
// 6 bits, else 64. While 8 waves multiply 256 of the depth with 4-bit codes, 2048 clocks, the LDS
// reads and writes for 1,280 of them; with 6-bit activations, for 1,540.
//
// Choices: wave tiles of 64 x 128 in 256x256, since activations have the wider codes and are so read
// by two waves instead of four. Few rows with 6-bit activations take the shorter steps, so that two
// workgroups share a CU.
#include "gemm/kernel.hpp"

HK_ARCHES(gfx950);

namespace hk::gemm {

// Weights, activations.
using Mx4Mx4 = Mx<E2m1, E2m1, 256>;
using Mx4E2m3 = Mx<E2m1, E2m3, 256>;
using Mx4E2m3Short = Mx<E2m1, E2m3, 128>;
using Mx4E3m2 = Mx<E2m1, E3m2, 256>;
using Mx4E3m2Short = Mx<E2m1, E3m2, 128>;
using Mx4Mx8 = Mx<E2m1, E4m3, 128>;
using E2m3E2m3 = Mx<E2m3, E2m3, 128>;
using E3m2E3m2 = Mx<E3m2, E3m2, 128>;
using Mx8Mx8 = Mx<E4m3, E4m3, 128>;

}  // namespace hk::gemm

#define MXFP4() mxfp4, Mx4Mx4, "e2m1", "e2m1", "mx"
#define MXFP4_E2M3() mxfp4_mxfp6_e2m3, Mx4E2m3, "e2m3", "e2m1", "mx"
#define MXFP4_E2M3_SHORT() mxfp4_mxfp6_e2m3, Mx4E2m3Short, "e2m3", "e2m1", "mx"
#define MXFP4_E3M2() mxfp4_mxfp6_e3m2, Mx4E3m2, "e3m2", "e2m1", "mx"
#define MXFP4_E3M2_SHORT() mxfp4_mxfp6_e3m2, Mx4E3m2Short, "e3m2", "e2m1", "mx"
#define MXFP4_MXFP8() mxfp4_mxfp8, Mx4Mx8, "e4m3", "e2m1", "mx"
#define MXFP6_E2M3() mxfp6_e2m3, E2m3E2m3, "e2m3", "e2m3", "mx"
#define MXFP6_E3M2() mxfp6_e3m2, E3m2E3m2, "e3m2", "e3m2", "mx"
#define MXFP8() mxfp8, Mx8Mx8, "e4m3", "e4m3", "mx"

WIDE(MXFP4, 85, 256, 256, 4, 2, 2, 2);
WIDE(MXFP4, 70, 128, 128, 2, 2, 2, 2);
DEEP(MXFP4, 60, 64, 64, 4, 2, 2);
DEEP(MXFP4, 40, 32, 32, 4, 3, 3);

WIDE(MXFP4_E2M3, 85, 256, 256, 4, 2, 2, 2);
WIDE(MXFP4_E2M3, 60, 128, 128, 2, 2, 2, 2);
DEEP(MXFP4_E2M3_SHORT, 45, 64, 64, 4, 3, 2);
DEEP(MXFP4_E2M3_SHORT, 25, 32, 32, 4, 4, 3);

WIDE(MXFP4_E3M2, 85, 256, 256, 4, 2, 2, 2);
WIDE(MXFP4_E3M2, 60, 128, 128, 2, 2, 2, 2);
DEEP(MXFP4_E3M2_SHORT, 45, 64, 64, 4, 3, 2);
DEEP(MXFP4_E3M2_SHORT, 25, 32, 32, 4, 4, 3);

WIDE(MXFP4_MXFP8, 80, 256, 256, 4, 2, 2, 2);
WIDE(MXFP4_MXFP8, 55, 128, 128, 2, 2, 2, 3);
DEEP(MXFP4_MXFP8, 60, 64, 64, 4, 2, 2);
DEEP(MXFP4_MXFP8, 40, 32, 32, 4, 3, 3);

WIDE(MXFP6_E2M3, 60, 256, 256, 4, 2, 2, 2);
WIDE(MXFP6_E2M3, 35, 128, 128, 2, 2, 2, 3);
DEEP(MXFP6_E2M3, 35, 64, 64, 4, 2, 2);
DEEP(MXFP6_E2M3, 25, 32, 32, 4, 3, 4);

WIDE(MXFP6_E3M2, 60, 256, 256, 4, 2, 2, 2);
WIDE(MXFP6_E3M2, 35, 128, 128, 2, 2, 2, 3);
DEEP(MXFP6_E3M2, 35, 64, 64, 4, 2, 2);
DEEP(MXFP6_E3M2, 25, 32, 32, 4, 3, 4);

WIDE(MXFP8, 80, 256, 256, 4, 2, 2, 2);
WIDE(MXFP8, 55, 128, 128, 2, 2, 2, 2);
DEEP(MXFP8, 60, 64, 64, 4, 2, 2);
DEEP(MXFP8, 40, 32, 32, 4, 3, 3);
