// Partial results of a request whose keys several workgroups share. Each workgroup leaves its own in
// memory, and the last of a few to arrive joins theirs, level by level, in the order of the keys: the
// bits do not depend on which workgroup that is.
#pragma once

#include "deal.hpp"
#include "hk/ops/arrive.hpp"
#include "join_level.hpp"
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

  HK_DEVICE BoundedView view(u32 share, bool begins) const {
    return {base + wide_mul((2 * share + begins) * neighbour, kBytes), kBytes};
  }
  // Results of several shares. The first one is at byte `first` of the view, the others follow at
  // multiples of `step`, but none later than at `last`.
  struct Several {
    BoundedView view;
    u32 first, step, last;
  };
  HK_DEVICE Several view(Results of, bool begins) const {
    const u32 place = neighbour * kBytes, last = 2 * (of.last - of.first) * place;
    const u32 first = begins ? place : 0;
    return {{base + wide_mul(2 * of.first, place), last + first + kBytes},
            first,
            2 * of.apart * place,
            last};
  }
  HK_DEVICE static u32 sums(u32 row) { return row * kSumBytes; }
  HK_DEVICE static u32 output(u32 row) { return Shape::kQueryRows * kSumBytes + row * kRowBytes; }
};

template <class Shape>
HK_DEVICE void store_sums(BoundedView to, RowSums sums, u32 row, bool stores) {
  const Vec<u32, 2> both = {bit_cast<u32>(sums.maximum), bit_cast<u32>(sums.total)};
  const u32 place = stores ? PartialPlaces<Shape>::sums(row) : kNowhere;
  __builtin_amdgcn_raw_buffer_store_b64(both, to.descriptor, place, 0, 0);
}

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
  store_sums<Shape>(to, sums, row, exists && lane.half == 0);
}

// Joins what shares have left of a request's rows. A lane has four channels of a row at a time.
// `begins`: the share that begins the request.
template <class Shape, class Logits>
class JoinedRows {
  using T = typename Shape::Element;
  using Places = PartialPlaces<Shape>;
  static constexpr u32 kPieces = Shape::kHeadSize / 4;
  // Four channels of a row, joined: weighted by the sums of weights, moved to the largest maximum.
  struct Piece {
    RowSums sums;
    Vec<f32, 4> values;
  };

 public:
  HK_DEVICE JoinedRows(const AttentionDecodeArgs& arguments, u32 kv_head_, u32 begins_, Logits of,
                       f32 values)
      : args(arguments), places(arguments, kv_head_), kv_head(kv_head_), begins(begins_),
        logits(of), value_factor(values) {}

  // Stores the rows of the request, whose first token is `token`, if the results are all that there
  // are. Otherwise leaves one result.
  HK_DEVICE void store(Results of, bool are_all, const WaveRows<true>& rows, u32 token) const {
    for (u32 i = __builtin_amdgcn_workitem_id_x(); i < u32(rows.count) * kPieces;
         i += Shape::kThreads) {
      const u32 row = i / kPieces, number = i % kPieces;
      const Piece piece = join(of, row, number);
      if (are_all)
        store_piece(piece, rows, token, row, number);
      else
        leave(piece, places.view(of.place(), false), row, number);
    }
  }

 private:
  const AttentionDecodeArgs& args;
  Places places;
  u32 kv_head, begins;
  Logits logits;
  f32 value_factor;

  HK_DEVICE Piece join(Results of, u32 row, u32 number) const {
    static constexpr u32 kFan = JoinLevel::kFan;
    const auto from = places.view(of, of.first == begins);
    const u32 sums = Places::sums(row), outputs = Places::output(row) + number * 16;
    RowSums theirs[kFan];
    Vec<u32, 4> output[kFan];
    static_for<0, kFan>([&](auto i) {  // all at once: their latency is one
      const u32 at = i == 0 ? from.first : clamp_scalar(i * from.step, from.last);
      const auto both = load_words<2>(from.view, sums + at);
      theirs[i] = {bit_cast<f32>(both[0]), bit_cast<f32>(both[1])};
      output[i] = load_words<4>(from.view, outputs + at);
    });
    fence_schedule();
    f32 maximum = kNoScore;
    static_for<0, kFan>([&](auto i) {
      if (i >= of.count) theirs[i].maximum = kNoScore;
      maximum = __builtin_elementwise_maximum(maximum, theirs[i].maximum);
    });
    const f32 base = maximum == kNoScore ? 0 : maximum;
    Piece all{{maximum, 0}, {}};
    static_for<0, kFan>([&](auto i) {
      const f32 weight = __builtin_amdgcn_exp2f((theirs[i].maximum - base) * logits.factor);
      all.sums.total += theirs[i].total * weight;
      all.values += bit_cast<Vec<f32, 4>>(output[i]) * weight;
    });
    return all;
  }

  HK_DEVICE static void leave(const Piece& piece, BoundedView to, u32 row, u32 number) {
    __builtin_amdgcn_raw_buffer_store_b128(bit_cast<Vec<u32, 4>>(piece.values), to.descriptor,
                                           Places::output(row) + number * 16, 0, 0);
    store_sums<Shape>(to, piece.sums, row, number == 0);
  }

  HK_DEVICE void store_piece(const Piece& piece, const WaveRows<true>& rows, u32 token, u32 row,
                             u32 number) const {
    if (Shape::kPadded && i32(number * 4) >= args.value_size) return;
    const auto& [sums, values] = piece;
    const Divisor::Divided at = rows.group.divide(row);
    const u32 head = kv_head * rows.group.by + at.rest;
    token += at.quotient;
    RowWeights weights = RowWeights::of(sums, logits.factor, value_factor, logits.least());
    const f32 sink = sink_of_row(args, head);
    if (sink != kNoScore) weights = weights.with_sink(sink, value_factor);
    const Vec<u32, 2> words = {convert<T>(Pair{values[0], values[1]} * Pair(weights.inverse)),
                               convert<T>(Pair{values[2], values[3]} * Pair(weights.inverse))};
    T* out = (T*)args.out + offset(token, args.out_token) + offset(head, args.out_head);
    ((Vec<u32, 2> __attribute__((address_space(1)))*)out)[number] = words;
    if (args.lse && number == 0)
      ((f32 __attribute__((address_space(
          1)))*)args.lse)[offset(head, args.lse_head) + offset(token, args.lse_token)] =
          weights.log_sum_exp();
  }
};

}  // namespace hk::attention
