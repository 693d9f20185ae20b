// Prefill attention with a sliding window, with sinks, or with both: what attention_prefill.hip computes,
// of the last keys up to a row's own, and with a score of the head's that has no value. Kernels of their
// own, so that the others take no register and no instruction for it.
//
// Rows are of one head: the sinks of several would be one for each lane.
//
// A workgroup begins with the tile of keys that its first row's window begins in. Waves whose windows
// begin later compute the tiles before in vain: up to four of 64 keys.
//
// Choices:
//   - One loop more, before the steady one, for tiles that begin before a row's window. One comparison
//     masks both sides: past a row's last key the distance from it is a large number.
//   - In the first tile are values that no row sees, and they may be NaN. They are cleared in that loop,
//     in the fragments; codes on their way to LDS, and where each lane finds its row, it finds another
//     one. In the loop those would cost registers that d=64 has not got. The last step clears none: a
//     lone tile that has some is followed by another one, of which nobody sees anything.
//   - The sink joins the sum of the weights at the end (Epilogue), in logarithms: it is no maximum that
//     the weights would have to be taken from.
#include "attention/prefill.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(bf16_d64_packed_window, bf16, 64, 128, PackedRows, Window, 55);
ATTENTION_PREFILL(bf16_d64_paged_window, bf16, 64, 128, PagedRows, Window, 55);
ATTENTION_PREFILL(bf16_d64_tokens_window, bf16, 64, 128, TokenRows, Window, 55);
ATTENTION_PREFILL(bf16_d64_any_pages_window, bf16, 64, 128, AnyPagedRows, Window, 50);
ATTENTION_PREFILL(bf16_d64_split_window, bf16, 64, 128, SplitPagedRows, Window, 55);
ATTENTION_PREFILL(bf16_d128_packed_window, bf16, 128, 256, PackedRows, Window, 79);
ATTENTION_PREFILL(bf16_d128_paged_window, bf16, 128, 256, PagedRows, Window, 79);
ATTENTION_PREFILL(bf16_d128_tokens_window, bf16, 128, 256, TokenRows, Window, 79);
ATTENTION_PREFILL(bf16_d128_any_pages_window, bf16, 128, 256, AnyPagedRows, Window, 74);
ATTENTION_PREFILL(bf16_d128_split_window, bf16, 128, 256, SplitPagedRows, Window, 79);
ATTENTION_PREFILL(bf16_d128_packed_window_r128, bf16, 128, 128, PackedRows, Window, 64);
ATTENTION_PREFILL(bf16_d128_paged_window_r128, bf16, 128, 128, PagedRows, Window, 64);
ATTENTION_PREFILL(bf16_d128_tokens_window_r128, bf16, 128, 128, TokenRows, Window, 64);
ATTENTION_PREFILL(bf16_d128_split_window_r128, bf16, 128, 128, SplitPagedRows, Window, 64);
ATTENTION_PREFILL(f16_d64_packed_window, f16, 64, 128, PackedRows, Window, 55);
ATTENTION_PREFILL(f16_d64_paged_window, f16, 64, 128, PagedRows, Window, 55);
ATTENTION_PREFILL(f16_d64_tokens_window, f16, 64, 128, TokenRows, Window, 55);
ATTENTION_PREFILL(f16_d64_any_pages_window, f16, 64, 128, AnyPagedRows, Window, 50);
ATTENTION_PREFILL(f16_d64_split_window, f16, 64, 128, SplitPagedRows, Window, 55);
ATTENTION_PREFILL(f16_d128_packed_window, f16, 128, 256, PackedRows, Window, 79);
ATTENTION_PREFILL(f16_d128_paged_window, f16, 128, 256, PagedRows, Window, 79);
ATTENTION_PREFILL(f16_d128_tokens_window, f16, 128, 256, TokenRows, Window, 79);
ATTENTION_PREFILL(f16_d128_any_pages_window, f16, 128, 256, AnyPagedRows, Window, 74);
ATTENTION_PREFILL(f16_d128_split_window, f16, 128, 256, SplitPagedRows, Window, 79);
ATTENTION_PREFILL(f16_d128_packed_window_r128, f16, 128, 128, PackedRows, Window, 64);
ATTENTION_PREFILL(f16_d128_paged_window_r128, f16, 128, 128, PagedRows, Window, 64);
ATTENTION_PREFILL(f16_d128_tokens_window_r128, f16, 128, 128, TokenRows, Window, 64);
ATTENTION_PREFILL(f16_d128_split_window_r128, f16, 128, 128, SplitPagedRows, Window, 64);
