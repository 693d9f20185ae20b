// Prefill attention with linear biases (ALiBi): what attention_window.hip computes, windows and
// sinks included, of score + slope * (key - query), with a slope for each head. Kernels of their
// own, so that the others take no register and no instruction for it. Causal: the distance is that
// to a row's last key.
//
// Choices:
//   - The distance is a whole number in float32, exact up to 2^24 keys, and each bias one
//     multiply-add: none is a sum of others, whose roundings would grow with the row.
//   - Biased in units of the score, with a slope divided by the scale: what comes after, far scores
//     too, is as without (BiasedScores).
//   - An instruction for each score goes from keys to the next keys, a packed one adds two biases:
//     by model a fifth more time than without a bias.
//   - Two waves on a SIMD, not three, at d=64 where each lane finds its rows (Kernel).
//   - No blocks of any size, no tiles of fewer rows and no FP8: nobody was found to serve such
//     models.
#include "attention/kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(64, 128, Biased, packed(43), paged(41), tokens(43), split(43));
ATTENTION_PREFILL(128, 256, Biased, packed(69), paged(66), tokens(68), split(69));
