// Partial results that stay in memory until a second kernel joins them.
#pragma once

#include "../../../../csrc/kernels/attention/decode_kernel.hpp"

namespace hk::attention {

constexpr int kMergeThreads = 256;

struct Left : Dealt<Scores> {
  static constexpr char kName[16] = "left";
};

// A request's part is left, and that is all.
template <class Shape, class Source>
HK_DEVICE void finish(const AttentionDecodeArgs& args, const DealOf<Shape, Source>& deal,
                      AttentionWave<Shape, Source, Left>& attention, u32 share, u32 kv_head,
                      Lane lane, i32 wave, u32 lds) {
  const DealtTiles dealt = deal.at();
  if (dealt.is_whole())
    return finish<Shape, Source, Left>(args, deal, attention, share, kv_head, lane, wave, lds);
  const RequestRows<Shape> own(dealt, Heads<Shape, Source>(args, kv_head).group, wave);
  store_partial<Shape>(PartialPlaces<Shape>(args, kv_head).view(share, dealt.begins()),
                       attention.output, attention.softmax.sums(), own.rows.count, wave, lane);
}

// A lane's joined result: four channels of a row.
struct Joint {
  RowSums sums;
  Vec<f32, 4> values;

  HK_DEVICE void join(const Joint& other, f32 factor) {
    ColumnVector keep, add;
    sums.join(other.sums, factor, keep, add);
    values = values * keep + other.values * add;
  }
};

// The shares of a request, and the one of them whose workgroup joins some of it.
struct Shares {
  u32 first, last, own;

  // First and end of the workgroup's part of a number of things. The first share has none.
  HK_DEVICE u32 begin(u32 things) const { return things * (own - first - 1) / (last - first); }
  HK_DEVICE u32 end(u32 things) const { return things * (own - first) / (last - first); }
};

// Joins four channels of a row: the parts of every `slices`-th share.
template <class Shape>
HK_DEVICE Joint join_some(BoundedView parts, u32 neighbour, Shares of, u32 slice, u32 slices,
                          u32 row, u32 piece, f32 factor) {
  using Places = PartialPlaces<Shape>;
  constexpr u32 kAtOnce = 8;
  Joint joint{{kNoScore, 0}, {}};
  for (u32 from = of.first + slice; from <= of.last; from += kAtOnce * slices) {
    Vec<u32, 2> sums[kAtOnce];
    Vec<u32, 4> values[kAtOnce];
    static_for<0, kAtOnce>([&](auto k) {
      const u32 share = from + k * slices;
      const u32 place = (2 * share + (share == of.first)) * neighbour * Places::kBytes;
      const bool is_there = share <= of.last;
      sums[k] = load_words<2>(parts, is_there ? place + Places::sums(row) : kNowhere);
      values[k] =
          load_words<4>(parts, is_there ? place + Places::output(row) + piece * 16 : kNowhere);
    });
    fence_schedule();
    static_for<0, kAtOnce>([&](auto k) {
      const bool is_there = from + k * slices <= of.last;
      joint.join({{is_there ? bit_cast<f32>(sums[k][0]) : kNoScore, bit_cast<f32>(sums[k][1])},
                  bit_cast<Vec<f32, 4>>(values[k])},
                 factor);
    });
  }
  return joint;
}

template <class T>
HK_DEVICE void store(const AttentionDecodeArgs& args, Joint joint, u32 head, u32 token, u32 piece,
                     f32 factor) {
  RowWeights weights = RowWeights::of(joint.sums, factor, args.value_factor);
  const f32 sink = sink_of_row(args, head);
  if (sink != kNoScore) weights = weights.with_sink(sink, args.value_factor);
  joint.values *= weights.inverse;
  T* out = (T*)args.out + offset(token, args.out_token) + offset(head, args.out_head);
  ((Vec<u32, 2>*)out)[piece] = {convert<T>(Pair{joint.values[0], joint.values[1]}),
                                convert<T>(Pair{joint.values[2], joint.values[3]})};
  if (args.lse && piece == 0)
    args.lse[offset(head, args.lse_head) + offset(token, args.lse_token)] = weights.log_sum_exp();
}

// The workgroups of all shares but a request's first one join its parts: each has some channels of
// some rows, and its lanes are dealt these and the parts.
template <class Shape>
HK_DEVICE void merge_request(const AttentionDecodeArgs& args, const DealtTiles& dealt,
                             Shares shares, u32 kv_head) {
  using Places = PartialPlaces<Shape>;
  constexpr u32 kPieces = Shape::kHeadSize / 4;
  __attribute__((shared)) static Joint lds[kMergeThreads];
  const u32 thread = __builtin_amdgcn_workitem_id_x();
  const Divisor group{args.group, args.group_reciprocal};
  const u32 rows = min(WaveRows<true>::of_tokens(dealt.length, group), Shape::kQueryRows);
  const u32 begin = shares.begin(kPieces * rows), end = shares.end(kPieces * rows);
  if (begin == end) return;
  u32 slices = 1;
  while (2 * slices * (end - begin) <= kMergeThreads && slices < shares.last - shares.first)
    slices *= 2;
  const u32 slice = thread % slices;
  const Places places(args, kv_head);
  const BoundedView parts(places.base, 2 * args.shares * args.num_kv_heads * Places::kBytes);
  const f32 factor = Scale(args.scale).factor;
  for (u32 i = begin; i < end; i += kMergeThreads / slices) {
    const u32 item = min(i + thread / slices, end - 1), row = item / kPieces;
    Joint joint = join_some<Shape>(parts, places.neighbour, shares, slice, slices, row,
                                   item % kPieces, factor);
    lds[thread] = joint;
    for (u32 other = slices / 2; other > 0; other /= 2) {
      synchronize();
      if (slice < other) {
        joint.join(lds[thread + other], factor);
        lds[thread] = joint;
      }
    }
    synchronize();
    const Divisor::Divided at = group.divide(row);
    if (slice == 0 && i + thread / slices < end)
      store<typename Shape::Element>(args, joint, kv_head * args.group + at.rest,
                                     dealt.start + at.quotient, item % kPieces, factor);
  }
}

template <class Shape>
HK_DEVICE void merge(const AttentionDecodeArgs& args) {
  const u32 kv_head = __builtin_amdgcn_workgroup_id_x(), share = __builtin_amdgcn_workgroup_id_y();
  for (DealOf<Shape, PagedRows> deal(args, share, this_lane()); deal.has_more();) {
    deal.move(args);
    const DealtTiles dealt = deal.at();
    if (dealt.begins()) return;
    const EqualShares shares = deal.shares(args);
    merge_request<Shape>(
        args, dealt,
        {shares.share_of(dealt.before), shares.share_of(dealt.before + dealt.all - 1), share},
        kv_head);
  }
}

template <class Shape>
constexpr KernelInfo<AttentionFacts> merge_info(AttentionFacts facts) {
  KernelInfo<AttentionFacts> made{Shape::kQueryRows,
                                  Shape::kTileKeys,
                                  Shape::kHeadSize,
                                  0,
                                  0,
                                  "attention_decode",
                                  "attention_decode",
                                  facts,
                                  {4, 0}};
  return made;
}

}  // namespace hk::attention
