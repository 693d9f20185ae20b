// The attention decode kernel, which attention_decode.hip describes.
#pragma once

#include "epilogue.hpp"
#include "key_tiles.hpp"
#include "partial_result.hpp"
#include "rows.hpp"
#include "wave.hpp"

namespace hk::attention {

template <class Shape, class Source, class Mask>
constexpr int kDecodeLdsBytes = AttentionWave<Shape, Source, Mask>::kLdsBytes;

constexpr int kSmallTile = 2048;  // elements
// Number of tiles of keys that count as much as the begin of a request: more if tiles are small, or
// of codes, which have half the bytes. Mixtures of short and long requests took least time with these.
template <class Shape, class Source>
constexpr u32 kBeginTiles =
    Source::kWidens ? 7 : (Shape::kTileKeys * Shape::kHeadSize > kSmallTile ? 2 : 4);
template <class Shape, class Source>
using DealOf = Deal<Shape::kTileKeys, kBeginTiles<Shape, Source>>;

// The kernel's argument. The compiler reads it anew after each call, so that no scalar register holds
// any of it in between.
HK_DEVICE const AttentionDecodeArgs& this_argument() {
  auto* found = (Constant<AttentionDecodeArgs>)__builtin_amdgcn_kernarg_segment_ptr();
  asm volatile("" : "+s"(found));
  return *(const AttentionDecodeArgs*)found;
}

// The query heads of a workgroup's KV head, and the scales of its cache.
template <class Shape, class Source>
struct Heads {
  Divisor group;
  u32 head;  // the first
  f32 value_scale;
  Scale scale;

  HK_DEVICE Heads(const AttentionDecodeArgs& args, u32 kv_head)
      : group{args.group, args.group_reciprocal}, head(kv_head * args.group),
        value_scale(stored_scale<Source>(args.value_scale, kv_head, args.value_scale_head)),
        scale(args.scale * stored_scale<Source>(args.key_scale, kv_head, args.key_scale_head)) {}
};

// A wave's rows of a request.
template <class Shape>
struct RequestRows {
  i32 all;  // of all waves
  WaveRows<true> rows;
  u32 first_token;

  HK_DEVICE RequestRows(const DealtTiles& dealt, Divisor group, i32 wave)
      : all(scalar(min(WaveRows<true>::of_tokens(dealt.length, group), Shape::kQueryRows))),
        rows(group, Shape::row(wave), clamp_scalar(all - Shape::row(wave), Shape::kWaveRows)),
        first_token(dealt.start + rows.token) {}

  // Keys of a lane's row that come after those of the workgroup.
  HK_DEVICE i32 keys_behind(const DealtTiles& dealt, Lane lane) const {
    const i32 ahead = dealt.keys - dealt.length, end = i32(dealt.first_tile + dealt.end);
    return max(ahead + i32(rows.token + rows.token_of(lane.col)) + 1 - end * Shape::kTileKeys, 0);
  }
};

// Logits of a lane's row, which may be of any head.
template <class Shape, class Source, class Mask>
HK_DEVICE typename Mask::Logits logits_of_row(const AttentionDecodeArgs& args,
                                              const Heads<Shape, Source>& heads, i32 wave,
                                              Lane lane) {
  f32 slope = 0;
  if constexpr (Mask::Logits::kSloped) {
    using Slopes = const __attribute__((address_space(1))) f32*;
    const u32 head = heads.head + heads.group.divide(Shape::row(wave) + lane.col).rest;
    if (args.alibi_slopes) slope = ((Slopes)args.alibi_slopes)[head];
  }
  return Mask::Logits::of(args, slope, heads.scale.factor);
}

// Stores the result of a request. If other workgroups have some of its keys, the result goes to the
// workspace. The last workgroups to get there join results, and the last of all stores the rows.
template <class Shape, class Source, class Mask>
HK_DEVICE void finish(const AttentionDecodeArgs& args, const DealOf<Shape, Source>& deal,
                      AttentionWave<Shape, Source, Mask>& attention, u32 share, u32 kv_head,
                      Lane lane, i32 wave, u32 lds) {
  const DealtTiles dealt = deal.at();
  const Heads<Shape, Source> heads(args, kv_head);
  const RequestRows<Shape> own(dealt, heads.group, wave);
  RowSums sums = attention.softmax.sums();
  const f32 value_factor = args.value_factor * heads.value_scale;
  const auto logits = logits_of_row<Shape, Source, Mask>(args, heads, wave, lane);
  if (dealt.is_whole()) {
    const u32 head = heads.head + heads.group.divide(Shape::row(wave) + lane.col).rest;
    Epilogue<Shape, typename Mask::Whole>(args, value_factor, sink_of_row(args, head), lds, 0,
                                          heads.head, own.first_token, own.rows, wave, lane)
        .run(attention.output, sums, logits);
    return;
  }
  // Biases have counted the distance to the part's last key; the request's comes after it.
  if constexpr (Mask::Logits::kSloped)
    sums.maximum -= logits.slope * f32(own.keys_behind(dealt, lane));
  const EqualShares shares = deal.shares(args);
  const u32 first = shares.share_of(dealt.before),
            last = shares.share_of(dealt.before + dealt.all - 1);
  const PartialPlaces<Shape> places(args, kv_head);
  store_partial<Shape>(places.view(share, dealt.begins()), attention.output, sums, own.rows.count,
                       wave, lane);
  const JoinedRows<Shape, typename Mask::Logits> joined(args, kv_head, first, logits, value_factor);
  const WaveRows<true> rows(heads.group, 0, own.all);
  for (JoinLevel level(first, last, share);; level.rise()) {
    const Results results = level.joined();
    u32* arrived = args.arrived + level.counter() * args.num_kv_heads + kv_head;
    if (!arrives_last(arrived, results.count, lds, wave, lane)) return;
    if (wave == 0 && lane.id == 0) *arrived = 0;
    joined.store(results, level.is_last(), rows, dealt.start);
    if (level.is_last()) return;
  }
}

template <class Shape, class Source, class Mask>
HK_DEVICE void attention_decode() {
  using T = typename Shape::Element;
  using Rows = WaveRows<true>;
  using Wave = AttentionWave<Shape, Source, Mask>;
  using Stored = StoredOf<T, Source>;
  constexpr int kTileKeys = Shape::kTileKeys;
  static_assert(kDecodeLdsBytes<Shape, Source, Mask> <= arch::kLdsBytes);
  extern __attribute__((shared)) char lds[];
  const KeptByLanes kept_head = __builtin_amdgcn_workgroup_id_x(),
                    share = __builtin_amdgcn_workgroup_id_y();
  const Lane lane = this_lane();
  const i32 kept_wave = this_wave();
  for (DealOf<Shape, Source> deal(this_argument(), share, lane); deal.has_more();) {
    const AttentionDecodeArgs& args = this_argument();
    u32 shared = shared_address(lds);
    i32 wave = kept_wave;
    pin_scalar(shared, wave);  // else what follows from them would be kept between requests
    deal.move(args);
    const u32 kv_head = kept_head;
    const DealtTiles dealt = deal.at();
    if (dealt.first == dealt.end) continue;
    const Heads<Shape, Source> heads(args, kv_head);
    const RequestRows<Shape> own(dealt, heads.group, wave);
    const auto& [all_rows, rows, first_token] = own;
    const i32 wave_rows = rows.count;
    const Scale& scale = heads.scale;
    const Channels channels = channels_of<Shape>(args);
    const i32 end_key = min(i32(dealt.first_tile + dealt.end) * kTileKeys, dealt.keys);
    const QueryTile tile{true, dealt.request, 0, dealt.start, dealt.length, end_key, 0};
    const QueryRows<Shape> queries(shared + Wave::kQueryLds, wave, lane);
    const u64 query = offset(first_token, args.query_token) + offset(heads.head, args.query_head);
    queries.copy(address(args.query) + query * sizeof(T), rows, args.query_token * sizeof(T),
                 args.query_head * sizeof(T), channels.keys);

    const Source source = row_source<Source>(args, tile);
    auto keys = tensor_rows<Stored, Source>(tile, args.key, args.key_block,
                                            offset(kv_head, args.key_head), args.key_token);
    auto values = tensor_rows<Stored, Source>(tile, args.value, args.value_block,
                                              offset(kv_head, args.value_head), args.value_token);
    if constexpr (Source::kSplit) {
      in_pieces<Stored>(keys, args.key_piece, channels.keys * sizeof(Stored) / 16);
      in_pieces<Stored>(values, args.value_piece, channels.values);
    }
    const Visible<Mask> visible{dealt.keys,
                                dealt.keys - dealt.length,
                                args.causal,
                                args.window,
                                i32(dealt.first_tile + dealt.first) * kTileKeys,
                                end_key};
    const Rows all(heads.group, 0, all_rows);
    const auto tiles = KeyTiles::of<Shape, Source>(visible, all);
    Wave attention({source, keys, values, tiles.first_seen, channels, wave, lane}, shared, wave,
                   lane, logits_of_row<Shape, Source, Mask>(args, heads, wave, lane),
                   channels.keys);
    attention.forget();
    if (tiles.end > tiles.first) {
#include "key_loop.inc"
    } else {
      attention.clear();
    }
    wait_copies<0>();  // for tiles past the last one, whose LDS is used again
    fence_schedule();

    finish(this_argument(), deal, attention, share, kept_head, lane, wave, shared);
    take_over();
  }
}

}  // namespace hk::attention
