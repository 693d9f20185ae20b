// Partial results of a request whose keys several workgroups share. Each workgroup leaves its own in
// memory, and the last to arrive joins them in the order of the keys: the bits do not depend on which
// workgroup that is.
#pragma once

#include "deal.hpp"
#include "hk/ops/arrive.hpp"
#include "logits.hpp"
#include "row_weights.hpp"
#include "wave_rows.hpp"

namespace hk::attention {

// The sink of a lane's row, which is of any head; kNoScore: none.
HK_DEVICE f32 sink_of_row(const AttentionDecodeArgs& args, u32 head) {
  return args.sinks ? ((const __attribute__((address_space(1))) f32*)args.sinks)[head] : kNoScore;
}

// A workgroup's places in the workspace. It has two: for the request that it begins but does not
// end, and for one that another workgroup began. Each has the sums of all rows, then their outputs.
template <class Shape>
struct PartialPlaces {
  static constexpr u32 kRowBytes = Shape::kHeadSize * sizeof(f32);
  static constexpr u32 kSumBytes = 2 * sizeof(f32);
  static constexpr u32 kBytes = Shape::kQueryRows * (kRowBytes + kSumBytes);

  u64 base;       // of the KV head
  u32 neighbour;  // KV heads: places of one head are so many apart

  HK_DEVICE PartialPlaces(const AttentionDecodeArgs& args, u32 kv_head)
      : base(address(args.partial) + wide_mul(kv_head, kBytes)), neighbour(args.num_kv_heads) {}

  // An absent result reads as zeros.
  HK_DEVICE BoundedView view(u32 share, bool begins, bool is_there = true) const {
    const u32 place = (2 * share + begins) * neighbour;
    return {base + wide_mul(place, kBytes), is_there ? kBytes : 0};
  }
  HK_DEVICE static u32 sums(u32 row) { return row * kSumBytes; }
  HK_DEVICE static u32 output(u32 row) { return Shape::kQueryRows * kSumBytes + row * kRowBytes; }
};

// Leaves a wave's result. Rows that do not exist are not written.
template <class Shape, class Output>
HK_DEVICE void store_partial(BoundedView to, const Output& output, RowSums sums, i32 rows, i32 wave,
                             Lane lane) {
  using Places = PartialPlaces<Shape>;
  using Matrix = Mma<typename Shape::Element>;
  const u32 row = Shape::row(wave) + lane.col;
  const bool exists = lane.col < rows;
  const u32 first = exists ? Places::output(row) + lane.half * 16 : kNowhere;
  static_for<0, Shape::kHeadSize / 8>([&](auto i) {
    const Block& block = output.block[i / 4][0];
    constexpr int kFirst = 4 * (i.value % 4);  // of a lane's elements; its rows are channels
    constexpr int kChannel = Matrix::kRows * (i.value / 4) + Matrix::row(kFirst, 0);
    const Vec<f32, 4> four = {block[kFirst], block[kFirst + 1], block[kFirst + 2],
                              block[kFirst + 3]};
    __builtin_amdgcn_raw_buffer_store_b128(bit_cast<Vec<u32, 4>>(four), to.descriptor,
                                           first + kChannel * sizeof(f32), 0, 0);
  });
  const Vec<u32, 2> both = {bit_cast<u32>(sums.maximum), bit_cast<u32>(sums.total)};
  const bool stores = exists && lane.half == 0;
  __builtin_amdgcn_raw_buffer_store_b64(both, to.descriptor, stores ? Places::sums(row) : kNowhere,
                                        0, 0);
}

// Joins what shares `first` to `last` have left, of which the first one begins the request, and
// stores the rows. A lane has four channels of a row at a time.
template <class Shape, class Logits>
class JoinedRows {
  using T = typename Shape::Element;
  using Places = PartialPlaces<Shape>;
  static constexpr int kAtOnce = 16;  // results: one memory latency for all
  static constexpr u32 kPieces = Shape::kHeadSize / 4;

 public:
  HK_DEVICE JoinedRows(const AttentionDecodeArgs& arguments, u32 kv_head_, u32 first_, u32 last_,
                       Logits of, f32 values)
      : args(arguments), places(arguments, kv_head_), kv_head(kv_head_), first(first_), last(last_),
        logits(of), value_factor(values) {}

  // `rows`: of the request, whose first token is `token`.
  HK_DEVICE void store(const WaveRows<true>& rows, u32 token) const {
    for (u32 i = __builtin_amdgcn_workitem_id_x(); i < u32(rows.count) * kPieces;
         i += Shape::kThreads) {
      const u32 piece = i % kPieces;
      if (Shape::kPadded && i32(piece * 4) >= args.value_size) continue;
      store_piece(rows, token, i / kPieces, piece);
    }
  }

 private:
  const AttentionDecodeArgs& args;
  Places places;
  u32 kv_head, first, last;
  Logits logits;
  f32 value_factor;

  HK_DEVICE void store_piece(const WaveRows<true>& rows, u32 token, u32 row, u32 piece) const {
    RowSums sums{kNoScore, 0};
    Vec<f32, 4> values = {};
    for (u32 share = first; share <= last; share += kAtOnce) {
      Vec<u32, 2> theirs[kAtOnce];
      Vec<u32, 4> output[kAtOnce];
      static_for<0, kAtOnce>([&](auto k) {
        const BoundedView from = places.view(share + k, share + k == first, share + k <= last);
        theirs[k] = load_words<2>(from, Places::sums(row));
        output[k] = load_words<4>(from, Places::output(row) + piece * 16);
      });
      fence_schedule();
      static_for<0, kAtOnce>([&](auto k) {
        if (share + k > last) return;
        ColumnVector keep, add;
        sums.join({bit_cast<f32>(theirs[k][0]), bit_cast<f32>(theirs[k][1])}, logits.factor, keep,
                  add);
        values = values * keep + bit_cast<Vec<f32, 4>>(output[k]) * add;
      });
    }
    const Divisor::Divided at = rows.group.divide(row);
    const u32 head = kv_head * rows.group.by + at.rest;
    token += at.quotient;
    RowWeights weights = RowWeights::of(sums, logits.factor, value_factor, logits.least());
    const f32 sink = sink_of_row(args, head);
    if (sink != kNoScore) weights = weights.with_sink(sink, value_factor);
    const Vec<u32, 2> words = {convert<T>(Pair{values[0], values[1]} * Pair(weights.inverse)),
                               convert<T>(Pair{values[2], values[3]} * Pair(weights.inverse))};
    T* out = (T*)args.out + offset(token, args.out_token) + offset(head, args.out_head);
    ((Vec<u32, 2> __attribute__((address_space(1)))*)out)[piece] = words;
    if (args.lse && piece == 0)
      ((f32 __attribute__((address_space(
          1)))*)args.lse)[offset(head, args.lse_head) + offset(token, args.lse_token)] =
          weights.log_sum_exp();
  }
};

}  // namespace hk::attention
