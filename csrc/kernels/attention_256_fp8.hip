// Prefill attention with heads of 256 channels over a cache of e4m3 codes: attention_256.hip with the
// codes of attention_prefill_fp8.hip.
//
// A wave has two loads of 16 codes a lane for each tile, of the same row: eight pieces, each in a slot of
// its own, those of keys in the first half of the steps with scores, those of values with O.
#include "attention/prefill.hpp"

HK_ARCHES(gfx950);

namespace hk {
using PagedCodes = Widened<PagedRows, E4m3>;
using TokenCodes = Widened<TokenRows, E4m3>;
using SplitCodes = Widened<SplitPagedRows, E4m3>;
}  // namespace hk

ATTENTION_PREFILL(bf16_d256_paged_e4m3, bf16, 256, 128, PagedCodes, All, 81);
ATTENTION_PREFILL(bf16_d256_tokens_e4m3, bf16, 256, 128, TokenCodes, All, 84);
ATTENTION_PREFILL(bf16_d256_split_e4m3, bf16, 256, 128, SplitCodes, All, 83);
ATTENTION_PREFILL(f16_d256_paged_e4m3, f16, 256, 128, PagedCodes, All, 81);
ATTENTION_PREFILL(f16_d256_tokens_e4m3, f16, 256, 128, TokenCodes, All, 84);
ATTENTION_PREFILL(f16_d256_split_e4m3, f16, 256, 128, SplitCodes, All, 83);
ATTENTION_PREFILL(bf16_d256_paged_e4m3_window, bf16, 256, 128, PagedCodes, Window, 81);
ATTENTION_PREFILL(bf16_d256_tokens_e4m3_window, bf16, 256, 128, TokenCodes, Window, 84);
ATTENTION_PREFILL(bf16_d256_split_e4m3_window, bf16, 256, 128, SplitCodes, Window, 83);
ATTENTION_PREFILL(f16_d256_paged_e4m3_window, f16, 256, 128, PagedCodes, Window, 81);
ATTENTION_PREFILL(f16_d256_tokens_e4m3_window, f16, 256, 128, TokenCodes, Window, 84);
ATTENTION_PREFILL(f16_d256_split_e4m3_window, f16, 256, 128, SplitCodes, Window, 83);
ATTENTION_PREFILL(bf16_d256_paged_e4m3_part, bf16, 256, 128, PagedCodes, Part, 81);
ATTENTION_PREFILL(bf16_d256_tokens_e4m3_part, bf16, 256, 128, TokenCodes, Part, 84);
ATTENTION_PREFILL(bf16_d256_split_e4m3_part, bf16, 256, 128, SplitCodes, Part, 83);
ATTENTION_PREFILL(f16_d256_paged_e4m3_part, f16, 256, 128, PagedCodes, Part, 81);
ATTENTION_PREFILL(f16_d256_tokens_e4m3_part, f16, 256, 128, TokenCodes, Part, 84);
ATTENTION_PREFILL(f16_d256_split_e4m3_part, f16, 256, 128, SplitCodes, Part, 83);
