// d=256
#include "attention/prefill.hpp"

HK_ARCHES(gfx950);

namespace hk {
template <class Rows>
using InE4m3 = Widened<Rows, E4m3>;
}  // namespace hk

ATTENTION_PREFILL(bf16_d256_paged_e4m3, bf16, 256, 128, InE4m3<hk::PagedRows>, All, 50);
ATTENTION_PREFILL(bf16_d256_tokens_e4m3, bf16, 256, 128, InE4m3<hk::TokenRows>, All, 50);
ATTENTION_PREFILL(bf16_d256_split_e4m3, bf16, 256, 128, InE4m3<hk::SplitPagedRows>, All, 50);
ATTENTION_PREFILL(f16_d256_paged_e4m3, f16, 256, 128, InE4m3<hk::PagedRows>, All, 50);
ATTENTION_PREFILL(f16_d256_tokens_e4m3, f16, 256, 128, InE4m3<hk::TokenRows>, All, 50);
ATTENTION_PREFILL(f16_d256_split_e4m3, f16, 256, 128, InE4m3<hk::SplitPagedRows>, All, 50);
ATTENTION_PREFILL(bf16_d256_paged_e4m3_window, bf16, 256, 128, InE4m3<hk::PagedRows>, Window, 50);
ATTENTION_PREFILL(bf16_d256_tokens_e4m3_window, bf16, 256, 128, InE4m3<hk::TokenRows>, Window, 50);
ATTENTION_PREFILL(bf16_d256_split_e4m3_window, bf16, 256, 128, InE4m3<hk::SplitPagedRows>, Window, 50);
ATTENTION_PREFILL(f16_d256_paged_e4m3_window, f16, 256, 128, InE4m3<hk::PagedRows>, Window, 50);
ATTENTION_PREFILL(f16_d256_tokens_e4m3_window, f16, 256, 128, InE4m3<hk::TokenRows>, Window, 50);
ATTENTION_PREFILL(f16_d256_split_e4m3_window, f16, 256, 128, InE4m3<hk::SplitPagedRows>, Window, 50);
