// d=256
#include "attention/prefill.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(bf16_d256_packed, bf16, 256, 128, PackedRows, All, 50);
ATTENTION_PREFILL(bf16_d256_paged, bf16, 256, 128, PagedRows, All, 50);
ATTENTION_PREFILL(bf16_d256_tokens, bf16, 256, 128, TokenRows, All, 50);
ATTENTION_PREFILL(bf16_d256_split, bf16, 256, 128, SplitPagedRows, All, 50);
ATTENTION_PREFILL(f16_d256_packed, f16, 256, 128, PackedRows, All, 50);
ATTENTION_PREFILL(f16_d256_paged, f16, 256, 128, PagedRows, All, 50);
ATTENTION_PREFILL(f16_d256_tokens, f16, 256, 128, TokenRows, All, 50);
ATTENTION_PREFILL(f16_d256_split, f16, 256, 128, SplitPagedRows, All, 50);
ATTENTION_PREFILL(bf16_d256_packed_window, bf16, 256, 128, PackedRows, Window, 50);
ATTENTION_PREFILL(bf16_d256_paged_window, bf16, 256, 128, PagedRows, Window, 50);
ATTENTION_PREFILL(bf16_d256_tokens_window, bf16, 256, 128, TokenRows, Window, 50);
ATTENTION_PREFILL(bf16_d256_split_window, bf16, 256, 128, SplitPagedRows, Window, 50);
ATTENTION_PREFILL(f16_d256_packed_window, f16, 256, 128, PackedRows, Window, 50);
ATTENTION_PREFILL(f16_d256_paged_window, f16, 256, 128, PagedRows, Window, 50);
ATTENTION_PREFILL(f16_d256_tokens_window, f16, 256, 128, TokenRows, Window, 50);
ATTENTION_PREFILL(f16_d256_split_window, f16, 256, 128, SplitPagedRows, Window, 50);
