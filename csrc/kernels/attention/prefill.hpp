// The attention prefill kernel, which attention_prefill.hip describes, and what a launch must know of it.
#pragma once

#include "epilogue.hpp"
#include "hk/kernel_info.hpp"
#include "rows.hpp"
#include "wave.hpp"

namespace hk::attention {

template <class Shape, class Source>
constexpr int kLdsBytes = max(AttentionWave<Shape, Source>::kLdsBytes, Epilogue<Shape>::kLdsBytes);

template <class Shape, class Source>
HK_DEVICE void attention_prefill(const AttentionPrefillArgs& args) {
  using T = typename Shape::Element;
  constexpr int kTileKeys = Shape::kTileKeys;
  const u32 id = __builtin_amdgcn_workgroup_id_x(), heads = args.num_heads;
  const u32 head = neighbours_on_one_xcd(id % heads, heads);
  const Lane lane = this_lane();
  const i32 wave = this_wave();
  const QueryTile tile = find_query_tile<Shape::kQueryRows>(
      args.query_start_loc, args.num_requests, args.num_tokens, id / heads, lane, args.causal,
      key_lengths<Source>(args), key_lengths_count<Source>(args));
  if (!tile.exists) return;

  using Wave = AttentionWave<Shape, Source>;
  extern __attribute__((shared)) char lds[];
  static_assert(kLdsBytes<Shape, Source> <= arch::kLdsBytes);

  // First of all, as they come from far away.
  const i32 first_row = tile.first_row + Shape::row(wave);
  const i32 wave_rows = clamp_scalar(tile.length - first_row, Shape::kWaveRows);
  const u32 first_token = tile.start + first_row, row_bytes = args.query_token * sizeof(T);
  const QueryRows<Shape> queries(shared_address(lds) + Wave::kQueryLds, wave, lane);
  const u64 query = offset(first_token, args.query_token) + offset(head, args.query_head);
  queries.copy(address(args.query) + query * sizeof(T), wave_rows, row_bytes);

  const u32 kv_head = head * args.num_kv_heads / heads;
  const Source source = row_source<Source>(args, tile);
  using Stored = StoredOf<T, Source>;
  auto keys = tensor_rows<Stored, Source>(tile, args.key, args.key_block,
                                          offset(kv_head, args.key_head), args.key_token);
  auto values = tensor_rows<Stored, Source>(tile, args.value, args.value_block,
                                            offset(kv_head, args.value_head), args.value_token);
  if constexpr (Source::kSplit) {
    in_pieces<Stored>(keys, args.key_piece, Shape::kHeadSize * sizeof(Stored) / 16);
    in_pieces<Stored>(values, args.value_piece, Shape::kHeadSize);
  }
  const i32 num_keys = source.count;

  // Keys that the query rows up to a row see.
  const auto keys_seen = [&](i32 row) {
    return args.causal ? min(num_keys, max(num_keys - tile.length + row + 1, 0)) : num_keys;
  };
  const i32 tile_rows = min(tile.length - tile.first_row, Shape::kQueryRows);
  const i32 tiles = ceil_div(keys_seen(tile.first_row + tile_rows - 1), kTileKeys);
  // Of the wave's part of the keys: tiles that a row sees, and those that every row sees whole.
  const i32 part = Shape::part(wave) * Shape::kWaveKeys, rest = kTileKeys - Shape::kWaveKeys - part;
  const i32 own_tiles =
      wave_rows == 0 ? 0 : ceil_div(max(keys_seen(first_row + wave_rows - 1) - part, 0), kTileKeys);
  const i32 whole_tiles = (keys_seen(first_row) + rest) / kTileKeys;

  // Both here: a load of its own after the loop would be waited for.
  f32 key_scale = stored_scale<Source>(args.key_scale, kv_head, args.key_scale_head),
      value_scale = stored_scale<Source>(args.value_scale, kv_head, args.value_scale_head);
  if constexpr (Source::kWidens) pin_scalar(key_scale, value_scale);
  const Scale scale(args.scale * key_scale);
  Wave attention({source, keys, values, wave, lane}, shared_address(lds), wave, lane, scale.factor,
                 keys_seen(first_row + lane.col) - 1);

  if (tiles > 0) {
    attention.start(queries, scale, own_tiles > 0);
    i32 j = -1;
    if (own_tiles > 0) {
      attention.template step<false, true, true>(0);
      for (j = 0; j + 1 < whole_tiles; ++j)
        attention.template step<true, true, false>((j + 1) * kTileKeys);
      for (; j + 1 < own_tiles; ++j) attention.template step<true, true, true>((j + 1) * kTileKeys);
      attention.template step<true, false, false>((own_tiles - 1) * kTileKeys);
      ++j;
    }
    for (; j < tiles; ++j) attention.idle();
  } else {
    attention.clear();
  }
  // Queries that nobody needs, or tiles past the last one. Their LDS is used again, by the epilogue or
  // by whom it is given to when the waves end; the registers of codes are, too.
  wait_copies<0>();
  // So is the LDS that an idle wave has written last; a scalar look-up has waited for it.
  if constexpr (Source::kWidens && !Source::kScalar && Shape::kKeyParts > 1) wait_lds<0>();
  fence_schedule();

  Epilogue<Shape>(args, args.value_factor * value_scale, shared_address(lds), head, first_token,
                  wave_rows, wave, lane)
      .run(attention.output, attention.softmax.sums(), scale.factor);
}

// What the launch must know (hk_backend/kernels/toolchain/build.py).
template <class Shape, class Source>
constexpr KernelInfo<AttentionFacts> info(AttentionFacts facts, i32 useful_percent) {
  for (int i = 0; i < 16; ++i) {
    facts.keys[i] = Source::kName[i];
    if constexpr (Source::kWidens)
      facts.stored[i] = Source::Code::kName[i];
    else
      facts.stored[i] = facts.dtype[i];
  }
  return {Shape::kQueryRows,
          Shape::kTileKeys,
          Shape::kHeadSize,
          kLdsBytes<Shape, Source>,
          4 * Shape::kWaveRows * Shape::kWaveKeys * Shape::kHeadSize,
          "(ceil_div(num_tokens, tile_rows) + num_requests) * num_heads",
          "attention_prefill",
          facts,
          {Shape::kWavesPerSimd, useful_percent}};
}

template <class T, int HeadSize, int QueryRows>
using Kernel = Shape<arch::Current, T, HeadSize, QueryRows>;

}  // namespace hk::attention

// Head size, query rows of a workgroup, how keys and values lie, least useful share (Bars).
#define ATTENTION_PREFILL(name, T, D, Rows, Source, Useful)           \
  using name##_shape = hk::attention::Kernel<hk::T, D, Rows>;         \
  HK_KERNEL(name##_shape::kThreads, name##_shape::kWavesPerSimd)      \
  attention_prefill_##name(hk::AttentionPrefillArgs args) {           \
    hk::attention::attention_prefill<name##_shape, hk::Source>(args); \
  }                                                                   \
  HK_KERNEL_INFO(attention_prefill_##name,                            \
                 hk::attention::info<name##_shape, hk::Source>({#T, D, {}, {}}, Useful))
