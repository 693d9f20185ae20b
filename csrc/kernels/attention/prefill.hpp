// The attention prefill kernel, which attention_prefill.hip describes.
#pragma once

#include "epilogue.hpp"
#include "key_tiles.hpp"
#include "rows.hpp"
#include "wave.hpp"

namespace hk::attention {

template <class Shape, class Source, class Mask>
constexpr int kLdsBytes =
    max(AttentionWave<Shape, Source, Mask>::kLdsBytes, Epilogue<Shape, Mask>::kLdsBytes);

// The work of one workgroup. `head` is the first of its heads if it has several.
struct Item {
  u32 part, head, kv_head, slot;
};

// Workgroup ids go round the XCDs: those of one part, or of one KV head, share its keys in one L2.
template <class Mask>
HK_DEVICE Item this_item(const AttentionPrefillArgs& args) {
  const u32 x = __builtin_amdgcn_workgroup_id_x(), y = __builtin_amdgcn_workgroup_id_y();
  const u32 part = Mask::kPart ? x : 0, slot = Mask::kPart ? __builtin_amdgcn_workgroup_id_z() : y;
  const u32 number = Mask::kPart ? y : x;
  if constexpr (Mask::kGrouped) return {part, number * args.group, number, slot};
  const u32 head = Mask::kPart ? number : neighbours_on_one_xcd(number, args.num_heads);
  return {part, head, Divisor{args.group, args.group_reciprocal}.divide(head).quotient, slot};
}

template <class Shape, class Source, class Mask>
HK_DEVICE void attention_prefill(const AttentionPrefillArgs& args) {
  using T = typename Shape::Element;
  constexpr int kTileKeys = Shape::kTileKeys;
  using Rows = WaveRows<Mask::kGrouped>;
  set_priority<1>();
  const auto [part_of_keys, head, kv_head, slot] = this_item<Mask>(args);
  const Divisor group{args.group, args.group_reciprocal};
  const Lane lane = this_lane();
  const i32 wave = this_wave();
  const QueryTile tile = find_query_tile<Shape::kQueryRows>(
      args.query_start_loc, args.num_requests, args.num_tokens, Mask::kGrouped ? group.by : 1, slot,
      lane, key_lengths<Source>(args), key_lengths_count<Source>(args));
  if (!tile.exists) return;

  using Wave = AttentionWave<Shape, Source, Mask>;
  extern __attribute__((shared)) char lds[];
  static_assert(kLdsBytes<Shape, Source, Mask> <= arch::kLdsBytes);

  // The queries are copied first, as they have the longest way.
  const i32 first_row = tile.first_row + Shape::row(wave);
  const i32 request_rows = Rows::of_tokens(tile.length, group);
  const i32 wave_rows = clamp_scalar(request_rows - first_row, Shape::kWaveRows);
  const Rows rows(group, first_row, wave_rows);
  const u32 first_token = tile.start + rows.token;
  const Channels channels = channels_of<Shape>(args);
  const QueryRows<Shape> queries(shared_address(lds) + Wave::kQueryLds, wave, lane);
  const u64 query = offset(first_token, args.query_token) + offset(head, args.query_head);
  queries.copy(address(args.query) + query * sizeof(T), rows, args.query_token * sizeof(T),
               args.query_head * sizeof(T), channels.keys);

  const Source source = row_source<Source>(args, tile);
  using Stored = StoredOf<T, Source>;
  auto keys = tensor_rows<Stored, Source>(tile, args.key, args.key_block,
                                          offset(kv_head, args.key_head), args.key_token);
  auto values = tensor_rows<Stored, Source>(tile, args.value, args.value_block,
                                            offset(kv_head, args.value_head), args.value_token);
  if constexpr (Source::kSplit) {
    in_pieces<Stored>(keys, args.key_piece, channels.keys * sizeof(Stored) / 16);
    in_pieces<Stored>(values, args.value_piece, channels.values);
  }
  const i32 num_keys = source.count;

  Visible<Mask> visible{num_keys, num_keys - tile.length, args.causal, args.window, 0, num_keys};
  const i32 tile_rows = min(request_rows - tile.first_row, Shape::kQueryRows);
  Rows all(group, tile.first_row, tile_rows);
  pin_scalar(all.token);  // else its operands would take registers that a window needs
  visible.limit(args, part_of_keys, all.token, kTileKeys);
  const auto tiles = KeyTiles::of<Shape, Source>(visible, all);
  // Both scales are loaded here: a load after the loop would be waited for by itself.
  f32 key_scale = stored_scale<Source>(args.key_scale, kv_head, args.key_scale_head),
      value_scale = stored_scale<Source>(args.value_scale, kv_head, args.value_scale_head);
  if constexpr (Source::kWidens) pin_scalar(key_scale, value_scale);
  f32 sink = sink_of<Mask>(args, head), slope = slope_of<Mask>(args, head);
  if constexpr (kHasSinks<Mask>) pin_scalar(sink);
  if constexpr (Mask::Logits::kSloped) pin_scalar(slope);
  const Scale scale(args.scale * key_scale);
  // A window over codes leaves no vector register for the factor at d=64.
  const f32 factor = Mask::kWindow && !Mask::kPart ? to_scalar(scale.factor) : scale.factor;
  const auto logits = Mask::Logits::of(args, slope, factor);
  Wave attention({source, keys, values, tiles.first_seen, channels, wave, lane},
                 shared_address(lds), wave, lane, logits, channels.keys);

  if (tiles.end > tiles.first) {
#include "key_loop.inc"
  } else {
    attention.clear();
  }
  // Waits for queries that nobody needs, or tiles past the last one. The epilogue uses their LDS
  // and the registers of codes again, as does the next workgroup when the waves end.
  wait_copies<0>();
  // The LDS that an idle wave has written last is used again, too. A scalar look-up has waited for
  // it.
  if constexpr (Source::kWidens && !Source::kScalar && Shape::kKeyParts > 1) wait_lds<0>();
  fence_schedule();

  Epilogue<Shape, Mask>(args, args.value_factor * value_scale, sink, shared_address(lds),
                        part_of_keys, head, first_token, rows, wave, lane)
      .run(attention.output, attention.softmax.sums(), logits);
}

}  // namespace hk::attention
