// Stores a wave's sums: joined with those of other keys, divided by the sum of the weights,
// rounded.
#pragma once

#include "row_weights.hpp"
#include "softmax.hpp"
#include "wave_rows.hpp"

namespace hk::attention {

// The epilogue of a wave. Nobody else uses the workgroup's LDS any more, so each wave has an equal
// share of it. There it leaves what the wave with the same rows and the other half of the keys has
// to know: the sums of half of the channels, and the rows' maxima and sums of weights.
template <class Shape, class Mask>
class Epilogue {
  using T = typename Shape::Element;
  using Matrix = Mma<T>;
  using Logits = typename Mask::Logits;
  static constexpr int kBlocks = Shape::kHeadSize / Matrix::kRows;
  static constexpr int kStored = kBlocks / Shape::kKeyParts;  // by one wave
  static constexpr int kWaveBytes = kStored * kBlockBytes + 2 * kColumnBytes;
  static_assert(kBlocks % Shape::kKeyParts == 0 && Shape::kKeyParts <= 2);

 public:
  static constexpr int kLdsBytes = Shape::kKeyParts > 1 ? Shape::kWaves* kWaveBytes : 0;
  using Output = ResultTile<Shape::kHeadSize, Shape::kWaveRows>;

  using Rows = WaveRows<Mask::kGrouped>;

  // `part`: of the keys; `token` and `head`: the first that the wave's rows are of.
  HK_DEVICE Epilogue(const AttentionPrefillArgs& arguments, f32 values, f32 sink_, u32 lds,
                     u32 part_, u32 head_, u32 token_, const Rows& rows_, i32 wave_, Lane lane_)
      : args(arguments), value_factor(values), sink(sink_), shared(lds), part(part_), head(head_),
        token(token_), rows(rows_), wave(wave_), lane(lane_) {}

  HK_DEVICE void run(Output& output, RowSums sums, Logits logits) const {
    if constexpr (Shape::kKeyParts == 1) {
      const RowWeights weights = weights_of(sums, logits);
      for (auto& row : output.block) hk::scale(row[0], row[0], weights.inverse);
      store_rows<0>(output);
      store_lse(sums, weights);
    } else {
      take_over();
      if (Shape::part(wave) == 0)
        join<0>(output, sums, logits);
      else
        join<1>(output, sums, logits);
    }
  }

 private:
  const AttentionPrefillArgs& args;
  f32 value_factor;  // of the output
  f32 sink;
  u32 shared;
  u32 part, head, token;
  Rows rows;
  i32 wave;
  Lane lane;

  HK_DEVICE u32 share_of(i32 of) const { return shared + of * kWaveBytes; }

  // Each of the two waves stores the channels that are its part's.
  template <int Part>
  HK_DEVICE void join(Output& output, RowSums sums, Logits logits) const {
    constexpr int kOwn = Part * kStored, kGiven = kStored - kOwn, kSums = kStored * kBlockBytes;
    const u32 mine = share_of(wave), other = share_of(Shape::partner(wave));
    static_for<0, kStored>(
        [&](auto c) { put(mine + c * kBlockBytes, output.block[kGiven + c][0], lane); });
    put(mine + kSums, sums.maximum, lane);
    put(mine + kSums + kColumnBytes, sums.total, lane);
    synchronize();
    RowSums others;
    Block theirs[kStored];
    get(others.maximum, other + kSums, lane);
    get(others.total, other + kSums + kColumnBytes, lane);
    static_for<0, kStored>([&](auto c) { get(theirs[c], other + c * kBlockBytes, lane); });
    fence_schedule();  // all at once: their latency is one
    ColumnVector keep, add;
    sums.join(others, logits.factor, keep, add);
    const RowWeights weights = weights_of(sums, logits);
    keep *= weights.inverse, add *= weights.inverse;
    static_for<0, kStored>([&](auto c) {
      Block& block = output.block[kOwn + c][0];
      hk::scale(theirs[c], theirs[c], add);
      block = block * keep + theirs[c];
    });
    store_rows<kOwn>(output);
    if constexpr (Part == 0) store_lse(sums, weights);
  }

  // Factors of the output. The merge (attention_merge.hip) applies a part's value factor and sinks,
  // so that the part's output stays within what T can hold.
  HK_DEVICE RowWeights weights_of(RowSums sums, Logits logits) const {
    const f32 values = Mask::kPart ? 1.0f : value_factor;
    const RowWeights weights = RowWeights::of(sums, logits.factor, values, logits.least());
    if constexpr (kHasSinks<Mask>)
      if (sink != kNoScore) return weights.with_sink(sink, values);
    return weights;
  }

  // The blocks of channels from `First` on.
  template <int First>
  HK_DEVICE void store_rows(const Output& output) const {
    const u64 before = Mask::kPart ? offset(part, args.out_part) : 0;
    const u64 first = before + offset(token, args.out_token) + offset(head, args.out_head);
    const BoundedView out(address(args.out) + first * sizeof(T), kNowhere);
    const u32 row = place(args.out_token * sizeof(T), args.out_head * sizeof(T));
    static_for<First, First + kStored>([&](auto c) {
      constexpr int kChannel = Matrix::kRows * c.value;
      const Block& block = output.block[c][0];
      if constexpr (Shape::kPadded)
        store_transposed_below<T>(out, [&] { return row; }, kChannel, args.value_size, block, lane);
      else
        store_transposed<T>(out, row, kChannel, block, lane);
    });
  }

  HK_DEVICE void store_lse(RowSums sums, RowWeights weights) const {
    if (!args.lse) return;
    if constexpr (Mask::kPart) {
      const u64 lse = offset(part, args.lse_part);
      store_column(lse, sums.maximum);
      store_column(lse + u64(args.lse_part) / 2, sums.total);
    } else {
      store_column(0, weights.log_sum_exp());
    }
  }
  HK_DEVICE void store_column(u64 first, ColumnVector src) const {
    first += offset(head, args.lse_head) + offset(token, args.lse_token);
    const u32 column = place(args.lse_token * sizeof(f32), args.lse_head * sizeof(f32));
    store(BoundedView(address(args.lse) + first * sizeof(f32), kNowhere), column, src, lane);
  }
  // The byte of this lane's row.
  HK_DEVICE u32 place(u32 token_bytes, u32 head_bytes) const {
    return lane.col < rows.count ? rows.byte_of(lane.col, token_bytes, head_bytes) : kNowhere;
  }
};

}  // namespace hk::attention
