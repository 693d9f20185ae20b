// The attention prefill kernel, which attention_prefill.hip describes, and what a launch must know of it.
#pragma once

#include "epilogue.hpp"
#include "hk/kernel_info.hpp"
#include "rows.hpp"
#include "wave.hpp"

namespace hk::attention {

template <class Shape, class Source, class Mask>
constexpr int kLdsBytes =
    max(AttentionWave<Shape, Source, Mask>::kLdsBytes, Epilogue<Shape, Mask>::kLdsBytes);

// What a workgroup computes: `head` is the first one, if it has several.
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

  // First of all, as they come from far away.
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
  pin_scalar(all.token);  // what it is made from takes registers that a window has not got
  if constexpr (Mask::kPart) {
    // Parts are whole tiles: the first begins with the tile that the first row's window begins in.
    const i32 begin = visible.window_begin(all.token) / kTileKeys * kTileKeys;
    visible.part_begin = begin + part_of_keys * args.part_keys;
    if (i32(part_of_keys) != args.parts - 1) visible.part_end = visible.part_begin + args.part_keys;
  }
  const i32 first_seen = visible.first(all.token), first_tile = first_seen / kTileKeys;
  // The last step clears no values before a window: another one comes after a first tile that has some.
  const bool clears = Mask::kWindow && !Source::kWidens && first_seen % kTileKeys != 0;
  const i32 fewest = clears ? first_tile + 2 : 0;
  const i32 last_seen = visible.end(all.token + all.token_of(tile_rows - 1));
  const i32 tiles = max(ceil_div(last_seen, kTileKeys), fewest);
  // Both here: a load of its own after the loop would be waited for.
  f32 key_scale = stored_scale<Source>(args.key_scale, kv_head, args.key_scale_head),
      value_scale = stored_scale<Source>(args.value_scale, kv_head, args.value_scale_head);
  if constexpr (Source::kWidens) pin_scalar(key_scale, value_scale);
  f32 sink = sink_of<Mask>(args, head), slope = slope_of<Mask>(args, head);
  if constexpr (kHasSinks<Mask>) pin_scalar(sink);
  if constexpr (Mask::Logits::kSloped) pin_scalar(slope);
  const Scale scale(args.scale * key_scale);
  // At d=64 in codes a window leaves no vector register for it.
  const f32 factor = Mask::kWindow && !Mask::kPart ? to_scalar(scale.factor) : scale.factor;
  const auto logits = Mask::Logits::of(args, slope, factor);
  Wave attention({source, keys, values, first_seen, channels, wave, lane}, shared_address(lds),
                 wave, lane, logits, channels.keys);

  if (tiles > first_tile) {
    constexpr Masked kBegin = Mask::kWindow ? Masked::kOutside : Masked::kPast;
    attention.copy_first();
    // Of the wave's part of the keys, from tile 0 on: tiles up to the last that a row sees, to the last
    // that every row sees to its end, and to the last that some row does not see from its beginning.
    const i32 part = Shape::part(wave) * Shape::kWaveKeys,
              rest = kTileKeys - Shape::kWaveKeys - part;
    const i32 last = rows.token + rows.token_of(max(wave_rows - 1, 0));
    // Without rows none, as a product: beside a branch the compiler waits where there is nothing.
    const i32 own_keys = max(visible.end(last) - part, 0) * i32(clamp_scalar(wave_rows, 1));
    i32 own_tiles = ceil_div(own_keys, kTileKeys);
    // A part without such values has its last step at once: a step before it would not clear those
    // past the last key.
    if (own_tiles > first_tile && first_seen % kTileKeys > part) own_tiles = max(own_tiles, fewest);
    const i32 whole_tiles = (visible.end(rows.token) + rest) / kTileKeys;
    const i32 begun_tiles = ceil_div(visible.first(last) - part, kTileKeys);
    const i32 own_token = rows.token + rows.token_of(lane.col);
    i32 own_end = visible.end(own_token), own_window = args.window;
    if constexpr (Mask::kWindow && Mask::kPart) {  // a part may have some of the window, or nothing
      own_window = own_end - visible.first(own_token);
      own_end = own_window > 0 ? own_end : 0;
      own_window = max(own_window, 1);
    }
    attention.see(own_end - 1, own_window, visible.first(rows.token));
    attention.start(queries, scale, own_tiles > first_tile);
    i32 j = first_tile - 1;
    if (own_tiles > first_tile) {
      attention.template step<false, true, kBegin>(first_tile * kTileKeys);
      j = first_tile;
      if constexpr (Mask::kWindow)
        for (; j + 1 < own_tiles && j < begun_tiles; ++j)
          attention.template step<true, true, kBegin>((j + 1) * kTileKeys);
      for (; j + 1 < whole_tiles; ++j)
        attention.template step<true, true, Masked::kNot>((j + 1) * kTileKeys);
      for (; j + 1 < own_tiles; ++j)
        attention.template step<true, true, Masked::kPast>((j + 1) * kTileKeys);
      attention.template step<true, false, Masked::kNot>((own_tiles - 1) * kTileKeys);
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

  Epilogue<Shape, Mask>(args, args.value_factor * value_scale, sink, shared_address(lds),
                        part_of_keys, head, first_token, rows, wave, lane)
      .run(attention.output, attention.softmax.sums(), logits);
}

// What the launch must know (hk_backend/kernels/toolchain/build.py).
template <class Shape, class Source, class Mask>
constexpr KernelInfo<AttentionFacts> info(AttentionFacts facts, i32 useful_percent) {
  facts.padded = Shape::kPadded;
  for (int i = 0; i < 16; ++i) {
    facts.keys[i] = Source::kName[i];
    facts.mask[i] = Mask::kName[i];
    if constexpr (Source::kWidens)
      facts.stored[i] = Source::Code::kName[i];
    else
      facts.stored[i] = facts.dtype[i];
  }
  KernelInfo<AttentionFacts> made = {Shape::kQueryRows,
                                     Shape::kTileKeys,
                                     Shape::kHeadSize,
                                     kLdsBytes<Shape, Source, Mask>,
                                     4 * Shape::kWaveRows * Shape::kWaveKeys * Shape::kHeadSize,
                                     {},
                                     "attention_prefill",
                                     facts,
                                     {Shape::kWavesPerSimd, useful_percent}};
  const char* grid = Mask::kPart      ? Mask::kGrouped ? "attention_part_grouped" : "attention_part"
                     : Mask::kGrouped ? "attention_prefill_grouped"
                                      : "attention_prefill";
  for (int i = 0; grid[i]; ++i) made.grid[i] = grid[i];
  return made;
}

// Where three waves on a SIMD have too few registers.
template <class Shape>
struct TwoWaves : Shape {
  static constexpr int kWavesPerSimd = min(Shape::kWavesPerSimd, 2);
};

// Scores that are bent take registers that are not there beside a lane's own addresses.
template <class T, int HeadSize, int QueryRows, class Source, class Mask,
          class Wanted = Shape<arch::Current, T, HeadSize, QueryRows>>
using Kernel = Conditional<Mask::Logits::kBends && Source::kByLane, TwoWaves<Wanted>, Wanted>;

}  // namespace hk::attention

// Head size, query rows of a workgroup, how keys and values lie, what rows see, least useful share (Bars).
#define ATTENTION_PREFILL(name, T, D, Rows, Source, Mask, Useful)                              \
  using name##_shape = hk::attention::Kernel<hk::T, D, Rows, hk::Source, hk::attention::Mask>; \
  ATTENTION_KERNEL(name, T, D, Source, Mask, Useful)

// The same for all head sizes up to D.
#define ATTENTION_PADDED(name, T, D, Rows, Source, Mask, Useful)               \
  using name##_shape = hk::attention::Padded<                                  \
      hk::attention::Kernel<hk::T, D, Rows, hk::Source, hk::attention::Mask>>; \
  ATTENTION_KERNEL(name, T, D, Source, Mask, Useful)

#define ATTENTION_KERNEL(name, T, D, Source, Mask, Useful)                                 \
  HK_KERNEL(name##_shape::kThreads, name##_shape::kWavesPerSimd)                           \
  attention_prefill_##name(hk::AttentionPrefillArgs args) {                                \
    hk::attention::attention_prefill<name##_shape, hk::Source, hk::attention::Mask>(args); \
  }                                                                                        \
  HK_KERNEL_INFO(attention_prefill_##name,                                                 \
                 hk::attention::info<name##_shape, hk::Source, hk::attention::Mask>(       \
                     {#T, D, {}, {}, {}, false}, Useful))
