// Prefill attention with heads of 256 channels: what attention_prefill.hip computes, with windows and
// sinks (attention_window.hip) or without, or of a part of the keys (attention_part.hip).
//
// A row's O takes 128 registers and Q another 64: one wave on each SIMD, with the registers of two. So
// a workgroup is 4 waves of 32 rows, and a tile 32 keys: a step has the slots that it has at d=128, 16
// of one block of scores, then 16 of O.
//
// Choices:
//   - No other wave fills the matrix unit's time, so an instruction less is 4 clocks less. Q lies in
//     accumulation registers, from where the matrix unit takes it: else 11 of its 16 fragments would
//     be moved in each step. Copies are apart, in slots without a wait (CopySlots).
//   - The matrix unit needs 1024 clocks for a step; 4 waves reading K and V, and the copies, need as
//     many of the LDS. So half of the waves run half a step behind (PingPong), though none share a
//     SIMD: while some read V, which takes twice as long, the others read K. By model 5%.
//   - What is left (by llvm-mca 1152 clocks a step, by the clock 1227) is instructions: about 270.
//   - A tile is one block of keys, of which late waves copy the second half: early ones read it at once,
//     so it lands a barrier earlier than at d=128 (kHeld).
//   - Tiles of 64 keys would leave room for two stages, and need no instruction less.
#include "attention/prefill.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(bf16_d256_packed, bf16, 256, 128, PackedRows, All, 88);
ATTENTION_PREFILL(bf16_d256_paged, bf16, 256, 128, PagedRows, All, 84);
ATTENTION_PREFILL(bf16_d256_tokens, bf16, 256, 128, TokenRows, All, 85);
ATTENTION_PREFILL(bf16_d256_split, bf16, 256, 128, SplitPagedRows, All, 86);
ATTENTION_PREFILL(f16_d256_packed, f16, 256, 128, PackedRows, All, 88);
ATTENTION_PREFILL(f16_d256_paged, f16, 256, 128, PagedRows, All, 84);
ATTENTION_PREFILL(f16_d256_tokens, f16, 256, 128, TokenRows, All, 85);
ATTENTION_PREFILL(f16_d256_split, f16, 256, 128, SplitPagedRows, All, 86);
ATTENTION_PREFILL(bf16_d256_packed_window, bf16, 256, 128, PackedRows, Window, 88);
ATTENTION_PREFILL(bf16_d256_paged_window, bf16, 256, 128, PagedRows, Window, 84);
ATTENTION_PREFILL(bf16_d256_tokens_window, bf16, 256, 128, TokenRows, Window, 85);
ATTENTION_PREFILL(bf16_d256_split_window, bf16, 256, 128, SplitPagedRows, Window, 86);
ATTENTION_PREFILL(f16_d256_packed_window, f16, 256, 128, PackedRows, Window, 88);
ATTENTION_PREFILL(f16_d256_paged_window, f16, 256, 128, PagedRows, Window, 84);
ATTENTION_PREFILL(f16_d256_tokens_window, f16, 256, 128, TokenRows, Window, 85);
ATTENTION_PREFILL(f16_d256_split_window, f16, 256, 128, SplitPagedRows, Window, 86);
ATTENTION_PREFILL(bf16_d256_packed_part, bf16, 256, 128, PackedRows, Part, 88);
ATTENTION_PREFILL(bf16_d256_paged_part, bf16, 256, 128, PagedRows, Part, 84);
ATTENTION_PREFILL(bf16_d256_tokens_part, bf16, 256, 128, TokenRows, Part, 85);
ATTENTION_PREFILL(bf16_d256_split_part, bf16, 256, 128, SplitPagedRows, Part, 86);
ATTENTION_PREFILL(f16_d256_packed_part, f16, 256, 128, PackedRows, Part, 88);
ATTENTION_PREFILL(f16_d256_paged_part, f16, 256, 128, PagedRows, Part, 84);
ATTENTION_PREFILL(f16_d256_tokens_part, f16, 256, 128, TokenRows, Part, 85);
ATTENTION_PREFILL(f16_d256_split_part, f16, 256, 128, SplitPagedRows, Part, 86);
