// The softmax of one wave, in pieces that fit between matrix instructions: it turns the scores of a
// tile into weights, and keeps each row's maximum and sum of weights.
#pragma once

#include "mask.hpp"

namespace hk::attention {

template <class Shape, class Tiles, class Logits>
class Softmax {
  using T = typename Shape::Element;
  using Slots = Step<Shape>;
  using Matrix = typename Slots::Matrix;
  static constexpr int kWaveKeys = Shape::kWaveKeys, kWaveRows = Shape::kWaveRows;
  static constexpr int kKeyBlocks = Slots::kKeyBlocks, kChannelSteps = Slots::kChannelSteps;
  static constexpr int kHalf = Slots::kHalf, kSlots = Slots::kSlots;
  static constexpr int kPairs = kWaveKeys * kWaveRows / arch::kLanes / 2;
  static constexpr int kBlockPairs = kPairs / kKeyBlocks;
  // Packed float32 instructions wait until the SIMD's matrix unit is idle, whichever wave keeps it
  // busy (docs/timing.md). With several waves two single instructions take less time. The step where
  // a window begins stays packed: single ones need registers that are not free.
  template <Masked kMasked>
  static constexpr bool kApart = Shape::kWavesPerSimd > 1 && kMasked != Masked::kOutside;

 public:
  HK_DEVICE explicit Softmax(Logits of) : logits(of) {}

  ResultTile<kWaveKeys, kWaveRows> scores;       // S^T
  OperandTile<T, kWaveRows, kWaveKeys> weights;  // P

  // Whether the maximum of `scores` calls for `rescale`, in any row.
  HK_DEVICE bool has_risen() const { return any(next_max > maximum.limit); }

  // The first tile's maximum, before there is any output that would have to move to it.
  HK_DEVICE void begin_rows() { maximum.rise(next_max, logits.factor); }

  // `output` and its sum are whole up to a tile here, so they can move to the maximum of the next.
  template <class Output>
  HK_DEVICE void rescale(Output& output) {
    const ColumnVector shrink = maximum.rise(next_max, logits.factor);
    for (auto& row : output.block)
      for (Block& block : row) hk::scale(block, block, shrink);
    sum *= Pair(shrink);
    if (maximum.is_far)
      static_for<0, kKeyBlocks>([&](auto i) { maximum.rebase(scores.block[i][0]); });
  }

  // Scores to weights, in three stages. The first frees the registers that the next scores take:
  // those of block 0 before the first slot, of the others by slot kChannelSteps.
  template <Masked kMasked>
  HK_DEVICE void begin() {
    static_for<0, kBlockPairs>([&](auto i) { exponent<kMasked>(i); });
  }
  template <Masked kMasked, int Slot>
  HK_DEVICE void weigh_slot() {
    constexpr int kSpan = weights_span();
    spread<Slot, 0, kChannelSteps, kPairs - kBlockPairs>(
        [&](auto i) { exponent<kMasked>(i + kBlockPairs); });
    spread<Slot, 0, kSpan, kPairs>([&](auto i) {
      exponents[i] = {__builtin_amdgcn_exp2f(exponents[i][0]),
                      __builtin_amdgcn_exp2f(exponents[i][1])};
    });
    spread<Slot, 1, kSpan, kPairs>([&](auto i) {
      if constexpr (kApart<kMasked>)  // a chain: the compiler would pack two sums
        sum[0] += exponents[i][0], sum[0] += exponents[i][1];
      else
        sum += exponents[i];
      convert<T, i.value % 4>(weights.part[0][i / 4], exponents[i]);
    });
  }

  // The maxima of the next scores, one block after the other as the matrix unit finishes them.
  // kMasked: keys past `last` have no weight, or also those more than `before` before it. Keys are
  // counted from this lane's first one of the tile.
  template <Masked kMasked, int Slot>
  HK_DEVICE void max_slot(i32 last, i32 before) {
    constexpr int kSpan = kHalf / 2, kBehind = min(kHalf / 4, 2);
    if constexpr (Slot == 0) next_max = kNoScore;
    static_for<0, kKeyBlocks>([&](auto block) {
      spread<Slot, (block.value + 1) * kChannelSteps + kBehind, kSpan, kBlockPairs>([&](auto i) {
        Block& rows = scores.block[block][0];
        if constexpr (Logits::kBends) bend<block.value, i.value>(rows, last);
        if constexpr (kMasked != Masked::kNot) {
          mask<kMasked, block.value, 2 * i.value>(rows, last, before);
          mask<kMasked, block.value, 2 * i.value + 1>(rows, last, before);
        }
        max_rows(next_max, next_max, pair(rows, i));
      });
    });
    if constexpr (Slot == kSlots - 2) {
      reduce_halves(next_max, next_max,
                    [](f32 a, f32 b) { return __builtin_elementwise_maximum(a, b); });
    }
  }

  HK_DEVICE RowSums sums() const {
    RowSums found{maximum.value, 0};
    reduce_halves(found.total, sum[0] + sum[1], [](f32 a, f32 b) { return a + b; });
    return found;
  }

 private:
  Logits logits;
  RowMaximum maximum;
  ColumnVector next_max;   // of `scores`
  Pair sum{};              // of this lane's weights
  Pair ahead;              // how far two keys lie ahead of the query, where scores depend on it
  Pair exponents[kPairs];  // of 2, then the weights themselves

  // Slots that the weights are spread over. They are late, because the first phase has more to do.
  // Each fragment of weights is complete before the slot that multiplies with it.
  HK_DEVICE static constexpr int weights_span() {
    int span = kSlots * 13 / 16;
    for (int step = 0; step < Slots::kKeySteps; ++step)
      while (1 + (4 * step + 3) * span / kPairs >= kHalf + step * Slots::kChannelBlocks) --span;
    return span;
  }
  template <Masked kMasked>
  HK_DEVICE void exponent(int i) {
    const Pair x = pair(scores.block[i / kBlockPairs][0], i % kBlockPairs);
    if constexpr (kApart<kMasked>)
      exponents[i] = {__builtin_elementwise_fma(x[0], logits.factor, -maximum.offset),
                      __builtin_elementwise_fma(x[1], logits.factor, -maximum.offset)};
    else
      exponents[i] = __builtin_elementwise_fma(x, Pair(logits.factor), Pair(-maximum.offset));
  }
  template <int BlockIndex, int I>
  HK_DEVICE void bend(Block& rows, i32 last) {
    constexpr f32 kKey = Matrix::kRows * BlockIndex + Tiles::key(2 * I, 0);
    // The distance goes from pair to pair: a constant for each would take scalar registers that are
    // not there.
    if constexpr (I == 0)
      ahead[0] = kKey - f32(last);
    else
      ahead[0] += f32(Tiles::key(2 * I, 0) - Tiles::key(2 * I - 2, 0));
    ahead[1] = ahead[0] + 1;
    const Pair bent = logits(pair(rows, I), ahead);
    rows[2 * I] = bent[0];
    rows[2 * I + 1] = bent[1];
  }
  template <Masked kMasked, int BlockIndex, int I>
  HK_DEVICE static void mask(Block& rows, i32 last, i32 before) {
    constexpr i32 kKey = Matrix::kRows * BlockIndex + Tiles::key(I, 0);
    // One comparison for both sides: past the last key the difference is a large number.
    const bool hidden = kMasked == Masked::kOutside ? u32(last - kKey) > u32(before) : kKey > last;
    rows[I] = hidden ? kNoScore : rows[I];
  }
};

}  // namespace hk::attention
