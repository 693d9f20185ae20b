// What attention_window.hip computes, over a cache of e4m3 codes as in attention_prefill_fp8.hip.
#include "attention/prefill.hpp"

HK_ARCHES(gfx950);

namespace hk {
using PagedCodes = Widened<PagedRows, E4m3>;
using SplitPagedCodes = Widened<SplitPagedRows, E4m3>;
using TokenCodes = Widened<TokenRows, E4m3>;
using AnyPagedCodes = Widened<AnyPagedRows, E4m3>;
}  // namespace hk

ATTENTION_PREFILL(bf16_d64_paged_e4m3_window, bf16, 64, 128, PagedCodes, Window, 53);
ATTENTION_PREFILL(bf16_d64_split_e4m3_window, bf16, 64, 128, SplitPagedCodes, Window, 55);
ATTENTION_PREFILL(bf16_d64_tokens_e4m3_window, bf16, 64, 128, TokenCodes, Window, 57);
ATTENTION_PREFILL(bf16_d64_any_pages_e4m3_window, bf16, 64, 128, AnyPagedCodes, Window, 52);
ATTENTION_PREFILL(bf16_d128_paged_e4m3_window, bf16, 128, 256, PagedCodes, Window, 76);
ATTENTION_PREFILL(bf16_d128_split_e4m3_window, bf16, 128, 256, SplitPagedCodes, Window, 77);
ATTENTION_PREFILL(bf16_d128_tokens_e4m3_window, bf16, 128, 256, TokenCodes, Window, 78);
ATTENTION_PREFILL(bf16_d128_any_pages_e4m3_window, bf16, 128, 256, AnyPagedCodes, Window, 75);
ATTENTION_PREFILL(bf16_d128_paged_e4m3_window_r128, bf16, 128, 128, PagedCodes, Window, 60);
ATTENTION_PREFILL(bf16_d128_split_e4m3_window_r128, bf16, 128, 128, SplitPagedCodes, Window, 62);
ATTENTION_PREFILL(bf16_d128_tokens_e4m3_window_r128, bf16, 128, 128, TokenCodes, Window, 65);
ATTENTION_PREFILL(f16_d64_paged_e4m3_window, f16, 64, 128, PagedCodes, Window, 53);
ATTENTION_PREFILL(f16_d64_split_e4m3_window, f16, 64, 128, SplitPagedCodes, Window, 55);
ATTENTION_PREFILL(f16_d64_tokens_e4m3_window, f16, 64, 128, TokenCodes, Window, 57);
ATTENTION_PREFILL(f16_d64_any_pages_e4m3_window, f16, 64, 128, AnyPagedCodes, Window, 52);
ATTENTION_PREFILL(f16_d128_paged_e4m3_window, f16, 128, 256, PagedCodes, Window, 76);
ATTENTION_PREFILL(f16_d128_split_e4m3_window, f16, 128, 256, SplitPagedCodes, Window, 77);
ATTENTION_PREFILL(f16_d128_tokens_e4m3_window, f16, 128, 256, TokenCodes, Window, 78);
ATTENTION_PREFILL(f16_d128_any_pages_e4m3_window, f16, 128, 256, AnyPagedCodes, Window, 75);
ATTENTION_PREFILL(f16_d128_paged_e4m3_window_r128, f16, 128, 128, PagedCodes, Window, 60);
ATTENTION_PREFILL(f16_d128_split_e4m3_window_r128, f16, 128, 128, SplitPagedCodes, Window, 62);
ATTENTION_PREFILL(f16_d128_tokens_e4m3_window_r128, f16, 128, 128, TokenCodes, Window, 65);
