// Prefill attention of a part of the keys of a cache of FP8 codes: as attention_part.hip.
#include "attention/prefill.hpp"

HK_ARCHES(gfx950);

namespace hk {
template <class Rows>
using InE4m3 = Widened<Rows, E4m3>;
}  // namespace hk

ATTENTION_PREFILL(bf16_d64_paged_e4m3_part, bf16, 64, 128, InE4m3<hk::PagedRows>, Part, 53);
ATTENTION_PREFILL(bf16_d64_split_e4m3_part, bf16, 64, 128, InE4m3<hk::SplitPagedRows>, Part, 55);
ATTENTION_PREFILL(bf16_d64_tokens_e4m3_part, bf16, 64, 128, InE4m3<hk::TokenRows>, Part, 57);
ATTENTION_PREFILL(bf16_d128_paged_e4m3_part, bf16, 128, 128, InE4m3<hk::PagedRows>, Part, 60);
ATTENTION_PREFILL(bf16_d128_split_e4m3_part, bf16, 128, 128, InE4m3<hk::SplitPagedRows>, Part, 62);
ATTENTION_PREFILL(bf16_d128_tokens_e4m3_part, bf16, 128, 128, InE4m3<hk::TokenRows>, Part, 65);
ATTENTION_PREFILL(f16_d64_paged_e4m3_part, f16, 64, 128, InE4m3<hk::PagedRows>, Part, 53);
ATTENTION_PREFILL(f16_d64_split_e4m3_part, f16, 64, 128, InE4m3<hk::SplitPagedRows>, Part, 55);
ATTENTION_PREFILL(f16_d64_tokens_e4m3_part, f16, 64, 128, InE4m3<hk::TokenRows>, Part, 57);
ATTENTION_PREFILL(f16_d128_paged_e4m3_part, f16, 128, 128, InE4m3<hk::PagedRows>, Part, 60);
ATTENTION_PREFILL(f16_d128_split_e4m3_part, f16, 128, 128, InE4m3<hk::SplitPagedRows>, Part, 62);
ATTENTION_PREFILL(f16_d128_tokens_e4m3_part, f16, 128, 128, InE4m3<hk::TokenRows>, Part, 65);
