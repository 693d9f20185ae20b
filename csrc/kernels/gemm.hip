// C = A B^T, times the scales of its rows and columns, plus a bias: A [m, k], B [n, k] packed, C
// [m, n], summed in float32. See hk/args/gemm.hpp for the argument. Here: 16-bit elements on both
// sides.
//
// A workgroup computes a tile of C, as the transpose: a lane owns a row of C, and its columns are
// neighbours in memory. The depth comes in steps of 128 bytes of a weight's row.
//
// Large launches (gemm/wave.hpp): each wave has a part of the tile. All copy a step to LDS
// together.
//
//   start copying the first steps to LDS | wait for step 0 | barrier | read its first part
//   for each step:
//     for each part of it:
//       read the next part, beside the matrix instructions on this one; before the last of them:
//         wait for the next step's copies | barrier | start copying a step to where this one was
//
// Few rows, or few tiles (gemm/deep_wave.hpp): each wave has all of the tile, and every fourth
// step. No wave waits for another, and weights go straight to registers: what bounds these launches
// is memory, or the 64 bytes a clock that reach a CU.
//
//   start loading the first steps
//   for each step of this wave:
//     for each part of it: read the next part of A from LDS, beside the mma on this one
//     start loading a step to where this one was
//   add up the waves' sums through LDS
//
// Then, in both:
//   if the depth is split over workgroups: leave the sums in memory; the last to arrive adds all up
//   epilogue: scale, add, round to the type of C, store
#include "gemm/kernel.hpp"

HK_ARCHES(gfx950);

// The same 16-bit type on both sides.
#define SIXTEEN_BIT(T) T, SixteenBit<hk::T>, #T, #T, "vectors"

WIDE_16_BIT(SIXTEEN_BIT, 85, 256, 256, 2, 4, 2, 2);
WIDE_16_BIT(SIXTEEN_BIT, 75, 128, 128, 2, 2, 2, 2);
WIDE_16_BIT(SIXTEEN_BIT, 60, 128, 64, 4, 1, 3, 2);
DEEP_16_BIT(SIXTEEN_BIT, 75, 64, 128, 4, 2, 1);
DEEP_16_BIT(SIXTEEN_BIT, 75, 64, 96, 4, 2, 1);
DEEP_16_BIT(SIXTEEN_BIT, 70, 64, 64, 4, 2, 2);
DEEP_16_BIT(SIXTEEN_BIT, 45, 64, 32, 4, 2, 2);
DEEP_16_BIT(SIXTEEN_BIT, 50, 32, 32, 4, 3, 3);
