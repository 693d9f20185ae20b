// Partial results that the last workgroup of a request joins all at once.
#pragma once

#include "merge.hpp"

namespace hk::attention {

struct Last : Dealt<Scores> {
  static constexpr char kName[16] = "last";
};

template <class Shape, class Source>
HK_DEVICE void finish(const AttentionDecodeArgs& args, const DealOf<Shape, Source>& deal,
                      AttentionWave<Shape, Source, Last>& attention, u32 share, u32 kv_head,
                      Lane lane, i32 wave, u32 lds) {
  using Places = PartialPlaces<Shape>;
  constexpr u32 kPieces = Shape::kHeadSize / 4;
  const DealtTiles dealt = deal.at();
  if (dealt.is_whole())
    return finish<Shape, Source, Last>(args, deal, attention, share, kv_head, lane, wave, lds);
  const Heads<Shape, Source> heads(args, kv_head);
  const RequestRows<Shape> own(dealt, heads.group, wave);
  const Places places(args, kv_head);
  store_partial<Shape>(places.view(share, dealt.begins()), attention.output,
                       attention.softmax.sums(), own.rows.count, wave, lane);
  const EqualShares dealt_to = deal.shares(args);
  const Shares shares{dealt_to.share_of(dealt.before),
                      dealt_to.share_of(dealt.before + dealt.all - 1), share};
  u32* arrived = args.arrived + shares.first * args.num_kv_heads + kv_head;
  if (!arrives_last(arrived, shares.last - shares.first + 1, lds, wave, lane)) return;
  if (wave == 0 && lane.id == 0) *arrived = 0;
  const BoundedView parts(places.base, 2 * args.shares * args.num_kv_heads * Places::kBytes);
  for (u32 i = __builtin_amdgcn_workitem_id_x(); i < u32(own.all) * kPieces; i += Shape::kThreads) {
    const u32 row = i / kPieces;
    const Joint joint = join_some<Shape>(parts, places.neighbour, shares, 0, 1, row, i % kPieces,
                                         heads.scale.factor);
    const Divisor::Divided at = heads.group.divide(row);
    store<typename Shape::Element>(args, joint, heads.head + at.rest, dealt.start + at.quotient,
                                   i % kPieces, heads.scale.factor);
  }
}

}  // namespace hk::attention
