// Prefill attention over a cache of FP8 codes: what attention_prefill.hip computes, of queries of 16 bits
// and keys and values in e4m3 or e5m2, with a scale for the whole cache or for each KV head.
//
// A wave loads 16 codes a lane of each tile, a step ahead, and writes them to LDS as 16-bit elements
// (TileFiller, WideningCopy): once for all waves of the workgroup, two codes an instruction. Every code
// is exact in either type, and a NaN stays one. From there on the kernel is the same. The scale of the
// keys is part of that of the scores, the scale of the values is applied to the output.
//
// Choices:
//   - K lies in pieces, whatever the cache: its two writes have one address. V that comes in rows keeps
//     the layout that transposed reads want.
//   - Both are written early in a step. The waits for the fragments of that step come later and are in
//     order: a steady step needs no other before the barrier. In pieces, apart where registers are free
//     for it (CopySlots).
//   - Codes wait in registers, so three tiles of keys in LDS suffice. Before the loop those of five tiles
//     are asked for at once, as each would else take a way to the memory of its own.
#include "attention/prefill.hpp"

HK_ARCHES(gfx950);

namespace hk {
template <class Rows>
using InE4m3 = Widened<Rows, E4m3>;
template <class Rows>
using InE5m2 = Widened<Rows, E5m2>;
}  // namespace hk

ATTENTION_PREFILL(bf16_d64_paged_e4m3, bf16, 64, 128, InE4m3<hk::PagedRows>, All, 53);
ATTENTION_PREFILL(bf16_d64_split_e4m3, bf16, 64, 128, InE4m3<hk::SplitPagedRows>, All, 55);
ATTENTION_PREFILL(bf16_d64_tokens_e4m3, bf16, 64, 128, InE4m3<hk::TokenRows>, All, 57);
ATTENTION_PREFILL(bf16_d64_any_pages_e4m3, bf16, 64, 128, InE4m3<hk::AnyPagedRows>, All, 52);
ATTENTION_PREFILL(bf16_d128_paged_e4m3, bf16, 128, 256, InE4m3<hk::PagedRows>, All, 76);
ATTENTION_PREFILL(bf16_d128_split_e4m3, bf16, 128, 256, InE4m3<hk::SplitPagedRows>, All, 77);
ATTENTION_PREFILL(bf16_d128_tokens_e4m3, bf16, 128, 256, InE4m3<hk::TokenRows>, All, 78);
ATTENTION_PREFILL(bf16_d128_any_pages_e4m3, bf16, 128, 256, InE4m3<hk::AnyPagedRows>, All, 75);
ATTENTION_PREFILL(bf16_d128_paged_e4m3_r128, bf16, 128, 128, InE4m3<hk::PagedRows>, All, 60);
ATTENTION_PREFILL(bf16_d128_split_e4m3_r128, bf16, 128, 128, InE4m3<hk::SplitPagedRows>, All, 62);
ATTENTION_PREFILL(bf16_d128_tokens_e4m3_r128, bf16, 128, 128, InE4m3<hk::TokenRows>, All, 65);
ATTENTION_PREFILL(bf16_d64_paged_e5m2, bf16, 64, 128, InE5m2<hk::PagedRows>, All, 53);
ATTENTION_PREFILL(bf16_d64_split_e5m2, bf16, 64, 128, InE5m2<hk::SplitPagedRows>, All, 55);
ATTENTION_PREFILL(bf16_d64_tokens_e5m2, bf16, 64, 128, InE5m2<hk::TokenRows>, All, 57);
ATTENTION_PREFILL(bf16_d64_any_pages_e5m2, bf16, 64, 128, InE5m2<hk::AnyPagedRows>, All, 52);
ATTENTION_PREFILL(bf16_d128_paged_e5m2, bf16, 128, 256, InE5m2<hk::PagedRows>, All, 76);
ATTENTION_PREFILL(bf16_d128_split_e5m2, bf16, 128, 256, InE5m2<hk::SplitPagedRows>, All, 77);
ATTENTION_PREFILL(bf16_d128_tokens_e5m2, bf16, 128, 256, InE5m2<hk::TokenRows>, All, 78);
ATTENTION_PREFILL(bf16_d128_any_pages_e5m2, bf16, 128, 256, InE5m2<hk::AnyPagedRows>, All, 75);
ATTENTION_PREFILL(bf16_d128_paged_e5m2_r128, bf16, 128, 128, InE5m2<hk::PagedRows>, All, 60);
ATTENTION_PREFILL(bf16_d128_split_e5m2_r128, bf16, 128, 128, InE5m2<hk::SplitPagedRows>, All, 62);
ATTENTION_PREFILL(bf16_d128_tokens_e5m2_r128, bf16, 128, 128, InE5m2<hk::TokenRows>, All, 65);
ATTENTION_PREFILL(f16_d64_paged_e4m3, f16, 64, 128, InE4m3<hk::PagedRows>, All, 53);
ATTENTION_PREFILL(f16_d64_split_e4m3, f16, 64, 128, InE4m3<hk::SplitPagedRows>, All, 55);
ATTENTION_PREFILL(f16_d64_tokens_e4m3, f16, 64, 128, InE4m3<hk::TokenRows>, All, 57);
ATTENTION_PREFILL(f16_d64_any_pages_e4m3, f16, 64, 128, InE4m3<hk::AnyPagedRows>, All, 52);
ATTENTION_PREFILL(f16_d128_paged_e4m3, f16, 128, 256, InE4m3<hk::PagedRows>, All, 76);
ATTENTION_PREFILL(f16_d128_split_e4m3, f16, 128, 256, InE4m3<hk::SplitPagedRows>, All, 77);
ATTENTION_PREFILL(f16_d128_tokens_e4m3, f16, 128, 256, InE4m3<hk::TokenRows>, All, 78);
ATTENTION_PREFILL(f16_d128_any_pages_e4m3, f16, 128, 256, InE4m3<hk::AnyPagedRows>, All, 75);
ATTENTION_PREFILL(f16_d128_paged_e4m3_r128, f16, 128, 128, InE4m3<hk::PagedRows>, All, 60);
ATTENTION_PREFILL(f16_d128_split_e4m3_r128, f16, 128, 128, InE4m3<hk::SplitPagedRows>, All, 62);
ATTENTION_PREFILL(f16_d128_tokens_e4m3_r128, f16, 128, 128, InE4m3<hk::TokenRows>, All, 65);
ATTENTION_PREFILL(f16_d64_paged_e5m2, f16, 64, 128, InE5m2<hk::PagedRows>, All, 53);
ATTENTION_PREFILL(f16_d64_split_e5m2, f16, 64, 128, InE5m2<hk::SplitPagedRows>, All, 55);
ATTENTION_PREFILL(f16_d64_tokens_e5m2, f16, 64, 128, InE5m2<hk::TokenRows>, All, 57);
ATTENTION_PREFILL(f16_d64_any_pages_e5m2, f16, 64, 128, InE5m2<hk::AnyPagedRows>, All, 52);
ATTENTION_PREFILL(f16_d128_paged_e5m2, f16, 128, 256, InE5m2<hk::PagedRows>, All, 76);
ATTENTION_PREFILL(f16_d128_split_e5m2, f16, 128, 256, InE5m2<hk::SplitPagedRows>, All, 77);
ATTENTION_PREFILL(f16_d128_tokens_e5m2, f16, 128, 256, InE5m2<hk::TokenRows>, All, 78);
ATTENTION_PREFILL(f16_d128_any_pages_e5m2, f16, 128, 256, InE5m2<hk::AnyPagedRows>, All, 75);
ATTENTION_PREFILL(f16_d128_paged_e5m2_r128, f16, 128, 128, InE5m2<hk::PagedRows>, All, 60);
ATTENTION_PREFILL(f16_d128_split_e5m2_r128, f16, 128, 128, InE5m2<hk::SplitPagedRows>, All, 62);
ATTENTION_PREFILL(f16_d128_tokens_e5m2_r128, f16, 128, 128, InE5m2<hk::TokenRows>, All, 65);
