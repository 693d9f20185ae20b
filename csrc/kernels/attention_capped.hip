// Prefill attention with soft-capped scores: what attention_window.hip computes, windows and sinks
// included, of cap * tanh(score / cap) in place of a score. Kernels of their own, so that the
// others take no register and no instruction for it.
//
// Choices:
//   - The softmax takes a sigmoid of the score, y = 1 / (1 + 2^x), in place of the tanh, which is
//     2y - 1: softmax sees differences alone, and the constant goes into the log-sum-exp
//     (CappedScores). An exponential and a reciprocal for each score, as many slots as those of the
//     weights, beside which they lie.
//   - That makes vector work the longer, at d=128 too: by model 43% more time, and 66% at d=64,
//     than without a cap; 21% at d=256. A polynomial would take as many clocks, and a branch for
//     scores that are near their cap.
//   - Capped before masks and maxima: y is 0 to 1 of scores of any size, and minus infinity only
//     where a mask has put it.
//   - Two waves on a SIMD, not three, at d=64 where each lane finds its rows (Kernel).
//   - No blocks of any size, and no tiles of fewer rows: models that cap scores are served in
//     blocks of 16 tokens or one.
#include "attention/kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(64, 128, Capped, packed(37), paged(35), tokens(37), split(37));
ATTENTION_PREFILL(128, 256, Capped, packed(58), paged(56), tokens(57), split(57));
ATTENTION_PREFILL(256, 128, Capped, packed(72), paged(70), tokens(70), split(71));
