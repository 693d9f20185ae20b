// One maximum for all parts of a request, as in FlashDecoding++ (Hong et al., 2023): their sums are
// then added up, by atomics, and the last workgroup to do so divides.
#pragma once

#include "../../../../csrc/kernels/attention/decode_kernel.hpp"

namespace hk::attention {

struct Added : Dealt<Scores> {
  static constexpr char kName[16] = "added";
  // Scores are taken from 0. A part whose maximum is a power of 2 beyond these leaves its sums as
  // they are, with its own maximum, and the last workgroup joins them.
  static constexpr f32 kSafe = 60;
  static constexpr u32 kOwn = 1u << 16;  // in the counter, for each wave that does so
};

// Adds a wave's result to that of the request. Whether a row cannot be added.
template <class Shape, class Output>
HK_DEVICE bool add(u64 to, const Output& output, RowSums sums, i32 rows, i32 wave, Lane lane,
                   f32 factor) {
  using Places = PartialPlaces<Shape>;
  const f32 power = sums.maximum * factor;
  const bool exists = lane.col < rows, has_keys = exists && sums.total > 0;
  if (any(has_keys && __builtin_fabsf(power) > Added::kSafe)) return true;
  if (!has_keys) return false;
  const f32 weight = __builtin_amdgcn_exp2f(power);
  const u32 row = Shape::row(wave) + lane.col;
  const auto at = [&](u32 byte) { return (__attribute__((address_space(1))) f32*)(to + byte); };
  static_for<0, Shape::kHeadSize / 2>([&](auto i) {
    constexpr int kBlock = i / 16, kElement = i % 16;
    const u32 channel = Mma<typename Shape::Element>::kRows * kBlock +
                        Mma<typename Shape::Element>::row(kElement, 0) + lane.half * 4;
    __builtin_amdgcn_global_atomic_fadd_f32(at(Places::output(row) + channel * 4),
                                            output.block[kBlock][0][kElement] * weight);
  });
  if (lane.half == 0)
    __builtin_amdgcn_global_atomic_fadd_f32(at(Places::sums(row) + 4), sums.total * weight);
  return false;
}

template <class Shape, class Source>
HK_DEVICE void finish(const AttentionDecodeArgs& args, const DealOf<Shape, Source>& deal,
                      AttentionWave<Shape, Source, Added>& attention, u32 share, u32 kv_head,
                      Lane lane, i32 wave, u32 lds) {
  using Places = PartialPlaces<Shape>;
  const DealtTiles dealt = deal.at();
  if (dealt.is_whole())
    return finish<Shape, Source, Added>(args, deal, attention, share, kv_head, lane, wave, lds);
  const Heads<Shape, Source> heads(args, kv_head);
  const RequestRows<Shape> own(dealt, heads.group, wave);
  const f32 factor = heads.scale.factor;
  RowSums sums = attention.softmax.sums();
  const EqualShares shares = deal.shares(args);
  const u32 first = shares.share_of(dealt.before),
            last = shares.share_of(dealt.before + dealt.all - 1);
  const Places places(args, kv_head);
  // Behind the places of parts there is one of each share for the request that begins in it.
  AttentionDecodeArgs joint_args = args;
  joint_args.partial += u64(Places::kBytes / 4) * 2 * args.shares * args.num_kv_heads;
  const Places joints(joint_args, kv_head);
  const u64 joint = joints.base + wide_mul(2 * first * joints.neighbour, Places::kBytes);
  u32* arrived = args.arrived + first * args.num_kv_heads + kv_head;
  const bool leaves = add<Shape>(joint, attention.output, sums, own.rows.count, wave, lane, factor);
  if (!leaves) sums.total = 0;
  store_partial<Shape>(places.view(share, dealt.begins()), attention.output, sums,
                       leaves ? own.rows.count : 0, wave, lane);
  if (!leaves)
    store_sums<Shape>(places.view(share, dealt.begins()), sums, Shape::row(wave) + lane.col,
                      lane.col < own.rows.count && lane.half == 0);
  if (leaves && lane.id == 0)
    __scoped_atomic_fetch_add(arrived, Added::kOwn, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
  barrier();
  auto* before = (__attribute__((address_space(3))) u32*)lds;
  if (wave == 0 && lane.id == 0)
    *before = __scoped_atomic_fetch_add(arrived, 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
  synchronize();
  const u32 found = __builtin_amdgcn_readfirstlane(*before);
  if (found % Added::kOwn != last - first) return;
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
  if (wave == 0 && lane.id == 0) *arrived = 0;
  const WaveRows<true> rows(heads.group, 0, own.all);
  const u32 pieces = u32(rows.count) * (Shape::kHeadSize / 4);
  const BoundedView all(joint, Places::kBytes);
  const u32 thread = __builtin_amdgcn_workitem_id_x();
  if (found >= Added::kOwn) {
    for (u32 i = thread; i < pieces; i += Shape::kThreads) {
      const u32 row = i / (Shape::kHeadSize / 4),
                at = Places::output(row) + i % (Shape::kHeadSize / 4) * 16;
      const auto both = load_words<2>(all, Places::sums(row));
      RowSums joined{bit_cast<f32>(both[1]) > 0 ? 0 : kNoScore, bit_cast<f32>(both[1])};
      auto values = bit_cast<Vec<f32, 4>>(load_words<4>(all, at));
      for (u32 part = first; part <= last; ++part) {
        const BoundedView from = places.view(part, part == first);
        const auto theirs = load_words<2>(from, Places::sums(row));
        const auto output = bit_cast<Vec<f32, 4>>(load_words<4>(from, at));
        if (bit_cast<f32>(theirs[1]) == 0) continue;
        ColumnVector keep, add;
        joined.join({bit_cast<f32>(theirs[0]), bit_cast<f32>(theirs[1])}, factor, keep, add);
        values = values * keep + output * add;
      }
      __builtin_amdgcn_raw_buffer_store_b128(bit_cast<Vec<u32, 4>>(values), all.descriptor, at, 0,
                                             0);
      store_sums<Shape>(all, joined, row, i % (Shape::kHeadSize / 4) == 0);
    }
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup");
  }
  const auto logits = Added::Logits::of(args, 0, factor);
  JoinedRows<Shape, Added::Logits>(joint_args, kv_head, ~0u, logits,
                                   args.value_factor * heads.value_scale)
      .store({first, first, 1, 1}, true, rows, dealt.start);
  barrier();
  for (u32 i = thread; i < pieces; i += Shape::kThreads) {
    const u32 row = i / (Shape::kHeadSize / 4);
    __builtin_amdgcn_raw_buffer_store_b128(
        Vec<u32, 4>{}, all.descriptor, Places::output(row) + i % (Shape::kHeadSize / 4) * 16, 0, 0);
    store_sums<Shape>(all, {0, 0}, row, i % (Shape::kHeadSize / 4) == 0);
  }
}

}  // namespace hk::attention
