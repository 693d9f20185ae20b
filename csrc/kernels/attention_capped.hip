// Prefill attention with soft-capped scores: what attention_window.hip computes, windows and sinks
// included, of cap * tanh(score / cap) in place of a score. Kernels of their own, so that the others take
// no register and no instruction for it.
//
// Choices:
//   - The softmax takes a sigmoid of the score, y = 1 / (1 + 2^x), in place of the tanh, which is 2y - 1:
//     softmax sees differences alone, and the constant goes into the log-sum-exp (CappedScores). An exponential
//     and a reciprocal for each score, as many slots as those of the weights, beside which they lie.
//   - That makes vector work the longer, at d=128 too: by model 34% more time, and 75% at d=64, than without a
//     cap; 22% at d=256. A polynomial would take as many clocks, and a branch for scores that are near their cap.
//   - Capped before masks and maxima: y is 0 to 1 of scores of any size, and minus infinity only where a
//     mask has put it.
//   - Two waves on a SIMD, not three, at d=64 where each lane finds its rows (Kernel).
//   - No blocks of any size, and no tiles of fewer rows: models that cap scores are served in blocks of 16
//     tokens or one.
#include "attention/prefill.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(bf16_d64_packed_capped, bf16, 64, 128, PackedRows, Capped, 41);
ATTENTION_PREFILL(bf16_d64_paged_capped, bf16, 64, 128, PagedRows, Capped, 39);
ATTENTION_PREFILL(bf16_d64_tokens_capped, bf16, 64, 128, TokenRows, Capped, 40);
ATTENTION_PREFILL(bf16_d64_split_capped, bf16, 64, 128, SplitPagedRows, Capped, 40);
ATTENTION_PREFILL(bf16_d128_packed_capped, bf16, 128, 256, PackedRows, Capped, 60);
ATTENTION_PREFILL(bf16_d128_paged_capped, bf16, 128, 256, PagedRows, Capped, 58);
ATTENTION_PREFILL(bf16_d128_tokens_capped, bf16, 128, 256, TokenRows, Capped, 59);
ATTENTION_PREFILL(bf16_d128_split_capped, bf16, 128, 256, SplitPagedRows, Capped, 60);
ATTENTION_PREFILL(bf16_d256_packed_capped, bf16, 256, 128, PackedRows, Capped, 72);
ATTENTION_PREFILL(bf16_d256_paged_capped, bf16, 256, 128, PagedRows, Capped, 70);
ATTENTION_PREFILL(bf16_d256_tokens_capped, bf16, 256, 128, TokenRows, Capped, 70);
ATTENTION_PREFILL(bf16_d256_split_capped, bf16, 256, 128, SplitPagedRows, Capped, 71);
ATTENTION_PREFILL(f16_d64_packed_capped, f16, 64, 128, PackedRows, Capped, 41);
ATTENTION_PREFILL(f16_d64_paged_capped, f16, 64, 128, PagedRows, Capped, 39);
ATTENTION_PREFILL(f16_d64_tokens_capped, f16, 64, 128, TokenRows, Capped, 40);
ATTENTION_PREFILL(f16_d64_split_capped, f16, 64, 128, SplitPagedRows, Capped, 40);
ATTENTION_PREFILL(f16_d128_packed_capped, f16, 128, 256, PackedRows, Capped, 60);
ATTENTION_PREFILL(f16_d128_paged_capped, f16, 128, 256, PagedRows, Capped, 58);
ATTENTION_PREFILL(f16_d128_tokens_capped, f16, 128, 256, TokenRows, Capped, 59);
ATTENTION_PREFILL(f16_d128_split_capped, f16, 128, 256, SplitPagedRows, Capped, 60);
ATTENTION_PREFILL(f16_d256_packed_capped, f16, 256, 128, PackedRows, Capped, 72);
ATTENTION_PREFILL(f16_d256_paged_capped, f16, 256, 128, PagedRows, Capped, 70);
ATTENTION_PREFILL(f16_d256_tokens_capped, f16, 256, 128, TokenRows, Capped, 70);
ATTENTION_PREFILL(f16_d256_split_capped, f16, 256, 128, SplitPagedRows, Capped, 71);
