// Prefill attention: O = softmax(scale Q K^T + mask) V for the query rows of a ragged batch, with the
// log-sum-exp of each row. GQA; causal (bottom-right aligned) or not; K and V packed or in a paged
// cache; bf16 or fp16 in and out, float32 sums. See hk/args/attention_prefill.hpp for the argument.
//
// A workgroup of 8 waves (d=128) or 4 (d=64) computes 256 or 128 query rows of one KV head, a wave 32
// of them, against tiles of 64 keys that all waves copy to LDS together and read there. For launches
// too small to fill the device with those, 8 waves share 128 rows (d=128), or 4 share 64: two have the
// same 32, each one half of every tile's keys, and join what they found at the end (Epilogue). All is
// transposed: a lane owns one query row (half of its keys or channels), so that maxima, sums and masks need no other
// lane until the last exchange between the wave's halves.
//
//   S^T = K Q^T   a lane gets 32 of the 64 scores of its row, in registers
//   P^T           those, exponentiated and converted in place: already the operand of
//   O^T += V^T P^T   with V^T read by transposed LDS reads
//
// The loop is software-pipelined by one tile: step j turns the scores of tile j into weights and
// into O, and computes the scores of tile j + 1.
//
//   copy Q, K0 and K1, and meanwhile prepare registers;  start copying V0 (K2 V1);
//   step -1: S of tile 0
//   for each tile j:
//     even phase   8 (d=64) or 16 (d=128) mma: S of tile j+1   beside: exponentials and weights of
//                  tile j, LDS reads of K(j+1), then V(j);  copy of K(j+4) (d=64: K(j+3))
//     odd phase    as many mma: O += P V of tile j   beside: the last weights, maxima of S of tile
//                  j+1, LDS reads of V(j), then K(j+2);  copy of V(j+3) (d=64: V(j+2)), and the
//                  addresses of the next copies
//   and one barrier in each step, before which K(j+3) and V(j+1) have landed.
//
// At d=128 two waves share a SIMD and run half a step apart (PingPong): one's vector work fills the
// other's matrix time. The early one is at the barrier at the end of its step, the late one in the
// middle. At d=64, where vector work is the longer, it is three waves of three workgroups, which have
// nothing to do with each other; a workgroup of half the rows reads keys and values twice as often.
// Within a phase the order is ours, not the compiler's: each mma is a slot, and each other stream of
// work has its share of the slots (interleave, spread). Between waves of a SIMD the one that is further
// in its step comes first (set_priority): by model 1 to 3% at d=64, up to 1% at d=128.
//
// Choices:
//   - Masks cost a comparison for every score, so tiles that some row does not see whole (the
//     diagonal, the last) have a loop of their own; the steady loop has none. With a window
//     (attention_window.hip) those that it begins in have another, before the steady one.
//   - O is rescaled only if a row's maximum rises by more than 2^8 (kHeadroom): rare after the first
//     tiles, so it is a branch off the loop. The weights are at most 2^8 meanwhile, far from any
//     limit of bf16 and fp16.
//   - The same branch serves scores that are too far from zero for one multiply-add (RowMaximum):
//     there it is taken in every step, and the steady loop is as long as before.
//   - exp2 with log2(e) folded into the scale: one packed multiply-add per two scores.
//   - The swizzle (types/shared_tile.hpp) keeps LDS reads free of bank conflicts: counted for reads
//     along rows; for transposed reads, whose phases are not published, by construction.
//   - Rows in blocks of fewer than 16 tokens, or of no multiple of it, may lie anywhere: each lane finds
//     its own, with look-ups and copies by an address of its own (lane_stream.hpp). Those have no
//     bounds: past the last row any row is read, and the last step clears it.
//   - A cache that keeps 16 bytes together, of a key's channels or of a value's tokens, is copied as it
//     lies (types/split_tiles.hpp): V is then the operand already, without transposed reads. There a
//     descriptor cannot end at the last key, and the last step clears what comes after it.
//   - Template arguments: element type and head size (register layout), and how keys and values lie
//     (arithmetic in the loop: 5 to 10% of its clocks). At run time, as they cost nothing there:
//     causal, the strides, the block size, heads, whether lse is wanted.
//   - A paged look-up is a scalar load, a tile ahead of its use, and shares its counter with the
//     LDS reads, which it therefore drains once a step (kDrained), where all are old.
//   - Rows are the query heads of a KV head, token by token (wave_rows.hpp): 20 tokens of 8 heads are
//     two tiles, not eight, and fewer tokens to a tile leave less of its diagonal to be masked. It costs
//     a division before the loop and one after it, and is no slower for a group of 1.
//   - A workgroup's rows are not balanced against another's; the longest causal tiles start first, of
//     requests of like lengths those of all (grid.hpp).
//   - Before the loop the scalar unit is the bottleneck, and Q the farthest away: Q is copied as soon
//     as its address is known, past the registers, and waves that share rows each copy half of them.
//     Of two waves on a SIMD the one that still has to start its first copies comes first.
#include "attention/prefill.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(bf16_d64_packed, bf16, 64, 128, PackedRows, All, 55);
ATTENTION_PREFILL(bf16_d64_paged, bf16, 64, 128, PagedRows, All, 55);
ATTENTION_PREFILL(bf16_d64_tokens, bf16, 64, 128, TokenRows, All, 55);
ATTENTION_PREFILL(bf16_d64_any_pages, bf16, 64, 128, AnyPagedRows, All, 50);
ATTENTION_PREFILL(bf16_d64_split, bf16, 64, 128, SplitPagedRows, All, 55);
ATTENTION_PREFILL(bf16_d128_packed, bf16, 128, 256, PackedRows, All, 79);
ATTENTION_PREFILL(bf16_d128_paged, bf16, 128, 256, PagedRows, All, 79);
ATTENTION_PREFILL(bf16_d128_tokens, bf16, 128, 256, TokenRows, All, 79);
ATTENTION_PREFILL(bf16_d128_any_pages, bf16, 128, 256, AnyPagedRows, All, 74);
ATTENTION_PREFILL(bf16_d128_split, bf16, 128, 256, SplitPagedRows, All, 79);
ATTENTION_PREFILL(bf16_d128_packed_r128, bf16, 128, 128, PackedRows, All, 64);
ATTENTION_PREFILL(bf16_d128_paged_r128, bf16, 128, 128, PagedRows, All, 64);
ATTENTION_PREFILL(bf16_d128_tokens_r128, bf16, 128, 128, TokenRows, All, 64);
ATTENTION_PREFILL(bf16_d128_split_r128, bf16, 128, 128, SplitPagedRows, All, 64);
ATTENTION_PREFILL(bf16_d128_packed_r64, bf16, 128, 64, PackedRows, All, 60);
ATTENTION_PREFILL(bf16_d128_paged_r64, bf16, 128, 64, PagedRows, All, 60);
ATTENTION_PREFILL(bf16_d128_tokens_r64, bf16, 128, 64, TokenRows, All, 60);
ATTENTION_PREFILL(bf16_d128_split_r64, bf16, 128, 64, SplitPagedRows, All, 60);
ATTENTION_PREFILL(f16_d64_packed, f16, 64, 128, PackedRows, All, 55);
ATTENTION_PREFILL(f16_d64_paged, f16, 64, 128, PagedRows, All, 55);
ATTENTION_PREFILL(f16_d64_tokens, f16, 64, 128, TokenRows, All, 55);
ATTENTION_PREFILL(f16_d64_any_pages, f16, 64, 128, AnyPagedRows, All, 50);
ATTENTION_PREFILL(f16_d64_split, f16, 64, 128, SplitPagedRows, All, 55);
ATTENTION_PREFILL(f16_d128_packed, f16, 128, 256, PackedRows, All, 79);
ATTENTION_PREFILL(f16_d128_paged, f16, 128, 256, PagedRows, All, 79);
ATTENTION_PREFILL(f16_d128_tokens, f16, 128, 256, TokenRows, All, 79);
ATTENTION_PREFILL(f16_d128_any_pages, f16, 128, 256, AnyPagedRows, All, 74);
ATTENTION_PREFILL(f16_d128_split, f16, 128, 256, SplitPagedRows, All, 79);
ATTENTION_PREFILL(f16_d128_packed_r128, f16, 128, 128, PackedRows, All, 64);
ATTENTION_PREFILL(f16_d128_paged_r128, f16, 128, 128, PagedRows, All, 64);
ATTENTION_PREFILL(f16_d128_tokens_r128, f16, 128, 128, TokenRows, All, 64);
ATTENTION_PREFILL(f16_d128_split_r128, f16, 128, 128, SplitPagedRows, All, 64);
ATTENTION_PREFILL(f16_d128_packed_r64, f16, 128, 64, PackedRows, All, 60);
ATTENTION_PREFILL(f16_d128_paged_r64, f16, 128, 64, PagedRows, All, 60);
ATTENTION_PREFILL(f16_d128_tokens_r64, f16, 128, 64, TokenRows, All, 60);
ATTENTION_PREFILL(f16_d128_split_r64, f16, 128, 64, SplitPagedRows, All, 60);
