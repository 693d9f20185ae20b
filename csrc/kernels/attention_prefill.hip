// Prefill attention: O = softmax(scale Q K^T + mask) V for the query rows of a ragged batch, with the
// log-sum-exp of each row. GQA; causal (bottom-right aligned) or not; K and V packed or in a paged
// cache; bf16 or fp16 in and out, float32 sums. See hk/args/attention_prefill.hpp for the argument.
//
// A workgroup of 8 waves (d=128) or 4 (d=64) computes 256 or 128 query rows of one head, a wave 32 of
// them, against tiles of 64 keys that all waves copy to LDS together and read there. Everything is
// transposed: a lane owns one query row (half of its keys or channels), so that maxima, sums and
// masks need no other lane until the last exchange between the wave's halves.
//
//   S^T = K Q^T   a lane gets 32 of the 64 scores of its row, in registers
//   P^T           those, exponentiated and converted in place: already the operand of
//   O^T += V^T P^T   with V^T read by transposed LDS reads
//
// The loop is software-pipelined by one tile: step j turns the scores of tile j into weights and
// into O, and computes the scores of tile j + 1.
//
//   copy K0 and K1, and meanwhile prepare registers;  start copying V0 (K2 V1);  step -1: S of tile 0
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
// work has its share of the slots (interleave, spread).
//
// Choices:
//   - Masks cost a comparison for every score, so tiles that some row does not see whole (the
//     diagonal, the last) have a loop of their own; the steady loop has none.
//   - O is rescaled only if a row's maximum rises by more than 2^8 (kHeadroom): rare after the first
//     tiles, so it is a branch off the loop. The weights are at most 2^8 meanwhile, far from any
//     limit of bf16 and fp16.
//   - The same branch serves scores that are too far from zero for one multiply-add (RowMaximum):
//     there it is taken in every step, and the steady loop is as long as before.
//   - exp2 with log2(e) folded into the scale: one packed multiply-add per two scores.
//   - The swizzle (types/shared_tile.hpp) keeps LDS reads free of bank conflicts: counted for reads
//     along rows; for transposed reads, whose phases are not published, by construction.
//   - Template arguments: element type and head size (register layout), packed or paged (scalar
//     arithmetic in the loop: 5 to 10% of its clocks). At run time, as they cost nothing there:
//     causal, the strides, the block size, heads, whether lse is wanted.
//   - A paged look-up is a scalar load, a tile ahead of its use, and shares its counter with the
//     LDS reads, which it therefore drains once a step (kDrained), where all are old.
//   - A workgroup's rows are not balanced against another's; the longest causal tiles start first.
#include "attention/rows.hpp"
#include "attention/wave.hpp"
#include "hk/kernel_info.hpp"

HK_ARCHES(gfx950);

namespace hk::attention {

template <class Shape, class Source>
HK_DEVICE void attention_prefill(const AttentionPrefillArgs& args) {
  using T = typename Shape::Element;
  constexpr int kWaveRows = Shape::kWaveRows, kTileKeys = Shape::kTileKeys;
  const i32 id = __builtin_amdgcn_workgroup_id_x();
  const i32 head = neighbours_on_one_xcd(id % args.num_heads, args.num_heads);
  const Lane lane = this_lane();
  const i32 wave = this_wave();
  const QueryTile tile =
      find_query_tile<Shape::kQueryRows>(args.query_start_loc, args.num_requests, args.num_tokens,
                                         id / args.num_heads, lane, args.causal);
  if (!tile.exists) return;

  const i32 kv_head = head / (args.num_heads / args.num_kv_heads);
  const Source source = row_source<Source>(args, tile.request);
  const auto keys = tensor_rows<T, Source>(args, tile.request, args.key, args.key_block,
                                           kv_head * args.key_head, args.key_token);
  const auto values = tensor_rows<T, Source>(args, tile.request, args.value, args.value_block,
                                             kv_head * args.value_head, args.value_token);
  const i32 num_keys = source.count;

  // Keys that the query rows up to a row see.
  const i32 first_row = tile.first_row + wave * kWaveRows;
  const auto keys_seen = [&](i32 row) {
    return args.causal ? min(num_keys, max(num_keys - tile.length + row + 1, 0)) : num_keys;
  };
  const i32 wave_rows = clamp_scalar(tile.length - first_row, kWaveRows);
  const i32 tile_rows = min(tile.length - tile.first_row, Shape::kQueryRows);
  const i32 tiles = ceil_div(keys_seen(tile.first_row + tile_rows - 1), kTileKeys);
  const i32 own_tiles =
      wave_rows == 0 ? 0 : ceil_div(keys_seen(first_row + wave_rows - 1), kTileKeys);
  const i32 whole_tiles = keys_seen(first_row) / kTileKeys;  // seen by every row

  using Wave = AttentionWave<Shape, Source>;
  extern __attribute__((shared)) char lds[];
  static_assert(Wave::kLdsBytes <= arch::kLdsBytes);
  const Scale scale(args.scale);
  Wave attention({source, keys, values, wave, lane}, shared_address(lds), wave, lane, scale.factor,
                 keys_seen(first_row + lane.col) - 1);

  const u32 query_bytes = args.query_token * sizeof(T), out_bytes = args.out_token * sizeof(T);
  const i64 first_token = tile.start + first_row;
  const u64 query_base =
      address(args.query) + (first_token * args.query_token + head * args.query_head) * sizeof(T);
  load(attention.query, BoundedView(query_base, wave_rows * query_bytes), query_bytes, lane);

  if (tiles > 0) {
    attention.start(scale);
    i32 j = -1;
    if (own_tiles > 0) {
      attention.template step<false, true, true>(0);
      for (j = 0; j + 1 < whole_tiles; ++j)
        attention.template step<true, true, false>((j + 1) * kTileKeys);
      for (; j + 1 < own_tiles; ++j) attention.template step<true, true, true>((j + 1) * kTileKeys);
      attention.template step<true, false, false>(0);
      ++j;
    }
    for (; j < tiles; ++j) attention.idle();
    wait_copies<0>();  // those past the last tile: the LDS is given away when the waves end
  }

  ColumnVector lse, inverse;
  attention.softmax.finish(lse, inverse, args.value_factor);
  const u64 out_base =
      address(args.out) + (first_token * args.out_token + head * args.out_head) * sizeof(T);
  const BoundedView out(out_base, wave_rows * out_bytes);
  static_for<0, Shape::kHeadSize / Mma<T>::kRows>([&](auto c) {
    Block& block = attention.output.block[c][0];
    hk::scale(block, block, inverse);
    store_transposed<T>(out, out_bytes, Mma<T>::kRows * c, block, lane);
  });
  if (args.lse) {
    const u64 lse_base =
        address(args.lse) + (head * args.lse_head + first_token * args.lse_token) * sizeof(f32);
    const u32 column_bytes = args.lse_token * sizeof(f32);
    store(BoundedView(lse_base, wave_rows * column_bytes), column_bytes, lse, lane);
  }
}

// What the launch must know (hk_backend/kernels/toolchain/build.py).
template <class Shape, class Source>
constexpr KernelInfo<AttentionFacts> info(const AttentionFacts& facts) {
  return {Shape::kQueryRows,
          Shape::kTileKeys,
          Shape::kHeadSize,
          AttentionWave<Shape, Source>::kLdsBytes,
          4 * Shape::kWaveRows * Shape::kTileKeys * Shape::kHeadSize,
          "(ceil_div(num_tokens, tile_rows) + num_requests) * num_heads",
          "attention_prefill",
          facts};
}

template <class T, int HeadSize>
using Kernel = Shape<arch::Current, T, HeadSize>;

}  // namespace hk::attention

#define ATTENTION_PREFILL(name, T, D, Source)                         \
  using name##_shape = hk::attention::Kernel<hk::T, D>;               \
  HK_KERNEL(name##_shape::kThreads, name##_shape::kWavesPerSimd)      \
  attention_prefill_##name(hk::AttentionPrefillArgs args) {           \
    hk::attention::attention_prefill<name##_shape, hk::Source>(args); \
  }                                                                   \
  HK_KERNEL_INFO(attention_prefill_##name,                            \
                 hk::attention::info<name##_shape, hk::Source>({#T, D, hk::Source::kBlocks}))

ATTENTION_PREFILL(bf16_d64_packed, bf16, 64, PackedRows);
ATTENTION_PREFILL(bf16_d64_paged, bf16, 64, PagedRows);
ATTENTION_PREFILL(bf16_d128_packed, bf16, 128, PackedRows);
ATTENTION_PREFILL(bf16_d128_paged, bf16, 128, PagedRows);
ATTENTION_PREFILL(f16_d64_packed, f16, 64, PackedRows);
ATTENTION_PREFILL(f16_d64_paged, f16, 64, PagedRows);
ATTENTION_PREFILL(f16_d128_packed, f16, 128, PackedRows);
ATTENTION_PREFILL(f16_d128_paged, f16, 128, PagedRows);
