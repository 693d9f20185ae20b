// Prefill attention: O = softmax(scale Q K^T + mask) V for the query rows of a ragged batch, with
// the log-sum-exp of each row. GQA; causal (bottom-right aligned) or not; K and V packed or in a
// paged cache; bf16 or fp16 in and out, float32 sums. See hk/args/attention_prefill.hpp for the
// argument.
//
// A workgroup of 8 waves (d=128) or 4 (d=64) computes 256 or 128 query rows of one KV head, and a
// wave 32 of these. All waves copy tiles of 64 keys to LDS together and read them there. Launches
// too small to fill the device with such workgroups have others: 8 waves for 128 rows, or 4 for 64.
// There two waves have the same 32 rows, each takes half of every tile's keys, and they join their
// results at the end (Epilogue).
//
// All is transposed: a lane owns one query row (half of its keys or channels). So maxima, sums and
// masks need no other lane until the last exchange between the wave's halves.
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
// Two waves share a SIMD at d=128 and run half a step apart (PingPong), so that one's vector work
// fills the other's matrix time. The early wave meets the barrier at the end of its step, the late
// one in the middle. At d=64 vector work takes longer than matrix work, and a SIMD has three waves
// of three workgroups, which are independent. (A workgroup of half the rows would read keys and
// values twice as often.)
//
// Within a phase the order is ours, not the compiler's: each mma is a slot, and each other stream
// of work has its share of the slots (interleave, spread). Among the waves of a SIMD the one that
// is further in its step comes first (set_priority): by model 1 to 3% at d=64, up to 1% at d=128.
//
// Choices:
//   - Masks cost a comparison for every score. So tiles that some row does not see whole (the
//     diagonal, the last) have a loop of their own, and the steady loop has no mask. With a window
//     (attention_window.hip) the tiles where it begins have another loop, before the steady one.
//   - O is rescaled only if a row's maximum rises by more than 2^8 (kHeadroom). That is rare after
//     the first tiles, so it is a branch off the loop. Until then the weights are at most 2^8, far
//     from any limit of bf16 and fp16.
//   - The same branch serves scores that are too far from zero for one multiply-add (RowMaximum).
//     For these it is taken in every step, and the steady loop is as long as before.
//   - exp2 with log2(e) folded into the scale: one multiply-add per score. A packed one for two
//     scores would wait until the SIMD's matrix unit is idle, so only waves that have a SIMD to
//     themselves use it (Softmax). At d=64 products with ones could add the weights up in a quarter
//     of the time (6% by model): weights as rounded to bf16, which would move lse by 2^-9.
//   - The swizzle (types/shared_tile.hpp) keeps LDS reads free of bank conflicts. For reads along
//     rows this is counted. The phases of transposed reads are not published; they have no
//     conflicts by construction.
//   - Rows in blocks of fewer than 16 tokens, or of no multiple of 16, may lie anywhere. Each lane
//     finds its own rows, with look-ups and copies by an address of its own (lane_stream.hpp).
//     Those copies have no bounds: past the last row any row is read, and the last step clears it.
//   - A cache that keeps 16 bytes together, of a key's channels or of a value's tokens, is copied
//     as it lies (types/split_tiles.hpp). V is then the operand already, without transposed reads.
//     A descriptor cannot end at the last key there, so the last step clears what comes after it.
//   - Template arguments: element type and head size (register layout), and how keys and values lie
//     (arithmetic in the loop: 5 to 10% of its clocks). Other choices cost nothing at run time:
//     causal, the strides, the block size, heads, whether lse is wanted.
//   - A paged look-up is a scalar load, a tile ahead of its use. It shares its counter with the LDS
//     reads, so these are drained once a step (kDrained), where all of them are old.
//   - Rows are the query heads of a KV head, token by token (wave_rows.hpp). So 20 tokens of 8
//     heads are two tiles, not eight, and a tile of fewer tokens has less of its diagonal to mask.
//     It costs a division before the loop and one after it, and is no slower for a group of 1.
//   - A workgroup's rows are not balanced against another's. The longest causal tiles start first,
//     and of requests of like lengths those of all (grid.hpp).
//   - Before the loop the scalar unit is the bottleneck, and Q has the longest way. Q is copied as
//     soon as its address is known, past the registers, and waves that share rows each copy half of
//     them. Of two waves on a SIMD the one that still has to start its first copies comes first.
#include "attention/kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(64, 128, All, packed(53), paged(50), tokens(54), any_pages(47), split(53));
ATTENTION_PREFILL(128, 256, All, packed(79), paged(76), tokens(79), any_pages(73), split(78));
// Blocks of any size have the usual rows alone: they are rare, and divide in every step anyway.
ATTENTION_FEWER_ROWS(128, 128, All, packed(64), paged(62), tokens(64), split(64));
ATTENTION_FEWER_ROWS(128, 64, All, packed(60), paged(60), tokens(60), split(60));
