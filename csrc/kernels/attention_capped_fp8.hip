// What attention_capped.hip computes, over a cache of e4m3 codes as in attention_prefill_fp8.hip. d=128
// alone: at d=64 three waves on a SIMD have no registers for it.
#include "attention/prefill.hpp"

HK_ARCHES(gfx950);

namespace hk {
using PagedCodes = Widened<PagedRows, E4m3>;
using SplitPagedCodes = Widened<SplitPagedRows, E4m3>;
using TokenCodes = Widened<TokenRows, E4m3>;
}  // namespace hk

ATTENTION_PREFILL(bf16_d128_paged_e4m3_capped, bf16, 128, 256, PagedCodes, Capped, 57);
ATTENTION_PREFILL(bf16_d128_split_e4m3_capped, bf16, 128, 256, SplitPagedCodes, Capped, 58);
ATTENTION_PREFILL(bf16_d128_tokens_e4m3_capped, bf16, 128, 256, TokenCodes, Capped, 59);
ATTENTION_PREFILL(f16_d128_paged_e4m3_capped, f16, 128, 256, PagedCodes, Capped, 57);
ATTENTION_PREFILL(f16_d128_split_e4m3_capped, f16, 128, 256, SplitPagedCodes, Capped, 58);
ATTENTION_PREFILL(f16_d128_tokens_e4m3_capped, f16, 128, 256, TokenCodes, Capped, 59);
