// Prefill attention with heads of any multiple of 8 channels: what attention_prefill.hip and
// attention_window.hip compute, in tiles of 128 or of 256 channels of which the launch uses a part.
//
// Choices:
//   - The head size is known at run time only, and the loop is that of the full size: 96 channels take as
//     long as 128. Right, not fast: models with such heads are few. So are those whose values have
//     another size than their keys (192 and 128): these are run-time sizes, too.
//   - Past a row's end there are other heads, or nothing. Lanes of a copy that would fetch from there
//     fetch from past the view instead: Q, K and V are zeros in LDS, and no step knows of it.
//   - Where each lane finds its rows (tokens) there is no view to be past of. There lanes fetch the
//     row's first bytes once more; in K they are cleared on the way to the matrix unit, as 0 times NaN
//     is NaN, and in V they reach only channels that are not stored.
//   - No FP8: codes would have to be cleared in registers.
#include "attention/prefill.hpp"

HK_ARCHES(gfx950);

ATTENTION_PADDED(bf16_up_to_d128_packed, bf16, 128, 256, PackedRows, All, 79);
ATTENTION_PADDED(bf16_up_to_d128_paged, bf16, 128, 256, PagedRows, All, 79);
ATTENTION_PADDED(bf16_up_to_d128_tokens, bf16, 128, 256, TokenRows, All, 66);
ATTENTION_PADDED(bf16_up_to_d128_split, bf16, 128, 256, SplitPagedRows, All, 79);
ATTENTION_PADDED(f16_up_to_d128_packed, f16, 128, 256, PackedRows, All, 79);
ATTENTION_PADDED(f16_up_to_d128_paged, f16, 128, 256, PagedRows, All, 79);
ATTENTION_PADDED(f16_up_to_d128_tokens, f16, 128, 256, TokenRows, All, 66);
ATTENTION_PADDED(f16_up_to_d128_split, f16, 128, 256, SplitPagedRows, All, 79);
ATTENTION_PADDED(bf16_up_to_d128_packed_window, bf16, 128, 256, PackedRows, Window, 79);
ATTENTION_PADDED(bf16_up_to_d128_paged_window, bf16, 128, 256, PagedRows, Window, 79);
ATTENTION_PADDED(bf16_up_to_d128_tokens_window, bf16, 128, 256, TokenRows, Window, 66);
ATTENTION_PADDED(bf16_up_to_d128_split_window, bf16, 128, 256, SplitPagedRows, Window, 79);
ATTENTION_PADDED(f16_up_to_d128_packed_window, f16, 128, 256, PackedRows, Window, 79);
ATTENTION_PADDED(f16_up_to_d128_paged_window, f16, 128, 256, PagedRows, Window, 79);
ATTENTION_PADDED(f16_up_to_d128_tokens_window, f16, 128, 256, TokenRows, Window, 66);
ATTENTION_PADDED(f16_up_to_d128_split_window, f16, 128, 256, SplitPagedRows, Window, 79);
ATTENTION_PADDED(bf16_up_to_d256_packed, bf16, 256, 128, PackedRows, All, 88);
ATTENTION_PADDED(bf16_up_to_d256_paged, bf16, 256, 128, PagedRows, All, 84);
ATTENTION_PADDED(bf16_up_to_d256_tokens, bf16, 256, 128, TokenRows, All, 68);
ATTENTION_PADDED(bf16_up_to_d256_split, bf16, 256, 128, SplitPagedRows, All, 85);
ATTENTION_PADDED(f16_up_to_d256_packed, f16, 256, 128, PackedRows, All, 88);
ATTENTION_PADDED(f16_up_to_d256_paged, f16, 256, 128, PagedRows, All, 84);
ATTENTION_PADDED(f16_up_to_d256_tokens, f16, 256, 128, TokenRows, All, 68);
ATTENTION_PADDED(f16_up_to_d256_split, f16, 256, 128, SplitPagedRows, All, 85);
ATTENTION_PADDED(bf16_up_to_d256_packed_window, bf16, 256, 128, PackedRows, Window, 88);
ATTENTION_PADDED(bf16_up_to_d256_paged_window, bf16, 256, 128, PagedRows, Window, 84);
ATTENTION_PADDED(bf16_up_to_d256_tokens_window, bf16, 256, 128, TokenRows, Window, 68);
ATTENTION_PADDED(bf16_up_to_d256_split_window, bf16, 256, 128, SplitPagedRows, Window, 85);
ATTENTION_PADDED(f16_up_to_d256_packed_window, f16, 256, 128, PackedRows, Window, 88);
ATTENTION_PADDED(f16_up_to_d256_paged_window, f16, 256, 128, PagedRows, Window, 84);
ATTENTION_PADDED(f16_up_to_d256_tokens_window, f16, 256, 128, TokenRows, Window, 68);
ATTENTION_PADDED(f16_up_to_d256_split_window, f16, 256, 128, SplitPagedRows, Window, 85);
