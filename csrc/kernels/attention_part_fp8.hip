// Prefill attention of a part of the keys of a cache of FP8 codes: as attention_part.hip.
#include "attention/prefill.hpp"

HK_ARCHES(gfx950);

namespace hk {
using PagedCodes = Widened<PagedRows, E4m3>;
using TokenCodes = Widened<TokenRows, E4m3>;
using SplitCodes = Widened<SplitPagedRows, E4m3>;
}  // namespace hk

ATTENTION_PREFILL(bf16_d64_paged_e4m3_part, bf16, 64, 128, PagedCodes, Part, 53);
ATTENTION_PREFILL(bf16_d64_split_e4m3_part, bf16, 64, 128, SplitCodes, Part, 55);
ATTENTION_PREFILL(bf16_d64_tokens_e4m3_part, bf16, 64, 128, TokenCodes, Part, 57);
ATTENTION_PREFILL(bf16_d128_paged_e4m3_part, bf16, 128, 128, PagedCodes, Part, 60);
ATTENTION_PREFILL(bf16_d128_split_e4m3_part, bf16, 128, 128, SplitCodes, Part, 62);
ATTENTION_PREFILL(bf16_d128_tokens_e4m3_part, bf16, 128, 128, TokenCodes, Part, 65);
ATTENTION_PREFILL(f16_d64_paged_e4m3_part, f16, 64, 128, PagedCodes, Part, 53);
ATTENTION_PREFILL(f16_d64_split_e4m3_part, f16, 64, 128, SplitCodes, Part, 55);
ATTENTION_PREFILL(f16_d64_tokens_e4m3_part, f16, 64, 128, TokenCodes, Part, 57);
ATTENTION_PREFILL(f16_d128_paged_e4m3_part, f16, 128, 128, PagedCodes, Part, 60);
ATTENTION_PREFILL(f16_d128_split_e4m3_part, f16, 128, 128, SplitCodes, Part, 62);
ATTENTION_PREFILL(f16_d128_tokens_e4m3_part, f16, 128, 128, TokenCodes, Part, 65);
ATTENTION_PREFILL(bf16_d128_paged_e4m3_window_part, bf16, 128, 128, PagedCodes, WindowPart, 60);
ATTENTION_PREFILL(bf16_d128_split_e4m3_window_part, bf16, 128, 128, SplitCodes, WindowPart, 62);
ATTENTION_PREFILL(bf16_d128_tokens_e4m3_window_part, bf16, 128, 128, TokenCodes, WindowPart, 65);
ATTENTION_PREFILL(f16_d128_paged_e4m3_window_part, f16, 128, 128, PagedCodes, WindowPart, 60);
ATTENTION_PREFILL(f16_d128_split_e4m3_window_part, f16, 128, 128, SplitCodes, WindowPart, 62);
ATTENTION_PREFILL(f16_d128_tokens_e4m3_window_part, f16, 128, 128, TokenCodes, WindowPart, 65);
