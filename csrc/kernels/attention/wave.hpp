// What one wave computes: its 32 query rows of one head against every tile of keys and values.
#pragma once

#include "key_value_stream.hpp"
#include "row_maximum.hpp"
#include "scale.hpp"

namespace hk::attention {

constexpr f32 kLn2 = 0.69314718055994531f;

// One wave: 32 query rows of one head against the key tiles that the workgroup streams.
template <class Shape, class Source>
class AttentionWave {
  using T = typename Shape::Element;
  using Matrix = Mma<T>;
  static constexpr int D = Shape::kHeadSize, kWaveRows = Shape::kWaveRows,
                       kTileKeys = Shape::kTileKeys;
  static constexpr int kKeyStages = Shape::kKeyStages, kValueStages = Shape::kValueStages;

 public:
  using Tile = typename Shape::Tile;
  using Stream = KeyValueStream<Shape, Source>;
  using KeyRing = TileRing<Tile, kKeyStages>;
  using ValueRing = TileRing<Tile, kValueStages>;
  static constexpr int kLdsBytes = KeyRing::kBytes + ValueRing::kBytes;

  HK_DEVICE AttentionWave(const Stream& copies, u32 lds, Lane in, f32 scale, i32 last)
      : stream(copies), key_ring{lds}, value_ring{lds + KeyRing::kBytes}, lane(in), factor(scale),
        last_key(last), key_rows(RowReader<Tile>::of(in)),
        value_columns(ColumnReader<Tile>::of(in)) {
    static_for<0, kChannelBlocks>([&](auto c) { fill(output.block[c][0], 0); });
  }

  OperandTile<T, kWaveRows, D> query;
  ResultTile<D, kWaveRows> output;  // O^T

  // Copies K and V of the tiles before those that step -1 copies; K0, V0 and K1 have landed.
  HK_DEVICE void start_copies() {
    stream.start();
    static_for<0, kKeyStages - 1>([&](auto i) {
      stream.copy_keys(key_ring.tile(i));
      stream.copy_values(value_ring.tile(i));
    });
    free_keys = key_ring.tile(kKeyStages - 1);
    free_values = value_ring.tile(kKeyStages - 1);
    value_ring.stage = value_ring.tile(kValueStages - 1).base - value_ring.base;
    rows = key_rows.at(key_ring.tile());
    wait_copies<kInFlight>();
    barrier();
  }

  // kThis: O += P V for the tile whose scores are at hand. kNext: the scores of the tile after it,
  // whose first key is `next_key`. kMasked: of which some rows do not see all.
  template <bool kThis, bool kNext, bool kMasked>
  HK_DEVICE void step(i32 next_key) {
    if constexpr (kThis) {
      if (__builtin_expect(any(next_max > maximum.limit), false)) rescale();
    }
    visible = last_key - next_key - Matrix::row(0, lane.half);
    const auto loads = [&](auto slot) { load_ahead<kThis, kNext, slot.value>(); };
    const auto softmax = [&](auto slot) {
      if constexpr (kThis) softmax_slot<slot.value>();
    };
    const auto maxima = [&](auto slot) {
      if constexpr (kNext) max_slot<kMasked, slot.value>();
    };

    if constexpr (kThis) {
      static_for<0, kBlockPairs>([&](auto i) { exponent(i); });
      fence_schedule();
    }
    if constexpr (!kThis) load_first();
    if constexpr (!kNext) wait_first();
    interleave<0, kHalf>(
        [&](auto slot) {
          if constexpr (kNext) score<kThis, slot.value>();
        },
        softmax, loads, maxima,
        [&](auto slot) {
          if constexpr (slot.value == 1) stream.copy_keys(free_keys);
        });
    end_even_phase();
    interleave<kHalf, kSlots>(
        [&](auto slot) {
          if constexpr (Source::kBlocks && slot.value == kDrained) {
            wait_lds<0>();
            fence_schedule();
          }
        },
        [&](auto slot) {
          if constexpr (kThis) accumulate<kNext, slot.value>();
        },
        softmax, [&](auto slot) { prepare_slot<slot.value - kHalf>(); }, loads, maxima);
    end_odd_phase();
  }

  // A tile that this wave has no part in, but for copying it.
  HK_DEVICE void idle() {
    stream.copy_keys(free_keys);
    end_even_phase();
    stream.copy_values(free_values);
    free_keys = key_ring.tile();
    free_values = value_ring.tile();
    key_ring.advance();
    value_ring.advance();
    end_odd_phase();
  }

  HK_DEVICE static void end_even_phase() {
    set_priority<1>();
    barrier();
  }
  // K and V of the next two tiles and K of the third have landed.
  HK_DEVICE static void end_odd_phase() {
    wait_copies<kInFlight>();
    set_priority<0>();
    barrier();
  }

  HK_DEVICE void finish(ColumnVector& lse, ColumnVector& inverse, f32 value_factor) const {
    ColumnVector total;
    reduce_halves(total, sum[0] + sum[1], [](f32 a, f32 b) { return a + b; });
    const bool nothing = total == 0;
    lse =
        nothing ? kNoScore : maximum.value * (factor * kLn2) + __builtin_amdgcn_logf(total) * kLn2;
    inverse = nothing ? 0 : value_factor * __builtin_amdgcn_rcpf(total);
  }

 private:
  static constexpr int kKeyBlocks = kTileKeys / Matrix::kRows;
  static constexpr int kChannelBlocks = D / Matrix::kRows;
  static constexpr int kChannelSteps = D / Matrix::kDepth;
  static constexpr int kKeySteps = kTileKeys / Matrix::kDepth;
  static constexpr int kHalf = kKeyBlocks * kChannelSteps;  // slots of a phase, one mma each
  static constexpr int kSlots = 2 * kHalf;
  static constexpr int kPairs = kTileKeys * kWaveRows / arch::kLanes / 2,
                       kBlockPairs = kPairs / kKeyBlocks;
  static constexpr int kAhead = kHalf / 2;  // fragments loaded ahead of their use
  static constexpr int kWaitSlots = 2;      // slots served by one wait
  // A look-up is a scalar load, which lands with all LDS reads or not at all: what was loaded
  // before this slot needs no other wait.
  static constexpr int kDrained = kSlots - kAhead + 2;
  static constexpr int kInFlight =
      Shape::kTilesInFlight * Stream::Share::kCopies;  // copies that no phase waits for
  static_assert(kHalf == kChannelBlocks * kKeySteps && kWaveRows == Matrix::kCols);

  Stream stream;
  KeyRing key_ring;
  ValueRing value_ring;
  Tile free_keys, free_values;  // copied to next
  Lane lane;
  f32 factor;
  i32 last_key, visible;  // of this lane's query; the same from the tile's first key
  RowReader<Tile> key_rows, rows;
  ColumnReader<Tile> value_columns, columns;

  ResultTile<kTileKeys, kWaveRows> scores;       // S^T
  Pair exponents[kPairs];                        // of 2, then the weights themselves
  OperandTile<T, kWaveRows, kTileKeys> weights;  // P
  Fragment<T> fragment[kSlots];                  // in order of use: K of the next tile, V of this
  RowMaximum maximum;                            // the one in use
  ColumnVector next_max;                         // that of `scores`
  Pair sum{};                                    // of this lane's weights

  // K (block, step) for slots 0 to kHalf - 1, V (step, block) for the others.
  template <int I>
  HK_DEVICE void load_fragment() {
    if constexpr (I < kHalf)
      load<I / kChannelSteps, I % kChannelSteps>(fragment[I], rows);
    else
      load<(I - kHalf) % kChannelBlocks, (I - kHalf) / kChannelBlocks>(fragment[I], columns);
  }
  HK_DEVICE void load_first() {
    static_for<0, kAhead>([&](auto i) { load_fragment<i.value>(); });
  }
  HK_DEVICE void wait_first() {
    wait_lds<0>();
    static_for<0, kAhead>([&](auto i) { pin_vector(fragment[i].words); });
  }
  template <bool kThis, bool kNext, int Slot>
  HK_DEVICE void load_ahead() {
    constexpr int kFragment = Slot + kAhead;
    if constexpr (reads<kThis, kNext>(kFragment) > 0) load_fragment<kFragment % kSlots>();
  }

  // The second phase has room: what the next step needs is computed in it. `rows` and `columns`
  // move on as soon as the last fragment of their tile is on its way.
  template <int Slot>
  HK_DEVICE void prepare_slot() {
    constexpr int kRoom = kHalf / 2;  // from here on no weights are computed
    if constexpr (Slot == kRoom - 1) {
      free_keys = key_ring.tile();
      key_ring.advance();
      rows = key_rows.at(key_ring.tile());
      pin_scalar(free_keys.base, key_ring.stage);
      rows.pin();
    }
    if constexpr (Slot == kRoom) stream.next_values();
    if constexpr (Slot == kRoom + 1) {
      copy(free_values, stream.value_span, stream.value_share);
      free_values = value_ring.tile();
      value_ring.advance();
      pin_scalar(free_values.base, value_ring.stage);
    }
    if constexpr (Slot == kDrained - kHalf) {
      stream.next_place();
      columns = value_columns.at(value_ring.tile());
      columns.pin();
    }
    if constexpr (Slot == kRoom + 3) {
      stream.find_next();
      stream.next_keys();
    }
  }

  // LDS reads that fragment `i` takes (from kSlots on: of the next step).
  template <bool kThis, bool kNext>
  HK_DEVICE static constexpr int reads(int i) {
    return i >= kHalf && i < kSlots ? kThis * 2 : kNext;
  }
  // Waits for two slots at once. What was loaded for later slots may stay in flight.
  template <bool kThis, bool kNext, int Slot>
  HK_DEVICE void wait_fragments() {
    if constexpr (Slot % kWaitSlots == 0) {
      constexpr int kPending = [] {
        int pending = 0;
        for (int i = Slot + kWaitSlots; i < Slot + kAhead; ++i) pending += reads<kThis, kNext>(i);
        return pending;
      }();
      constexpr bool kLanded =
          Source::kBlocks &&
          (Slot >= kDrained || (kThis && Slot + kWaitSlots <= kDrained + kAhead - kSlots));
      static_assert(kWaitSlots == 2 && kDrained % kWaitSlots == 0);
      if constexpr (kLanded)
        pin_vector(fragment[Slot].words, fragment[Slot + 1].words);
      else
        wait_lds<kPending>(fragment[Slot], fragment[Slot + 1]);
    }
  }

  template <bool kThis, int Slot>
  HK_DEVICE void score() {
    constexpr int kBlock = Slot / kChannelSteps, kStep = Slot % kChannelSteps;
    wait_fragments<kThis, true, Slot>();
    Block& dst = scores.block[kBlock][0];
    mma(dst, fragment[Slot], query.part[0][kStep], kStep == 0 ? Block(0.0f) : dst);
  }

  template <bool kNext, int Slot>
  HK_DEVICE void accumulate() {
    constexpr int kStep = (Slot - kHalf) / kChannelBlocks, kBlock = (Slot - kHalf) % kChannelBlocks;
    wait_fragments<true, kNext, Slot>();
    Block& dst = output.block[kBlock][0];
    mma(dst, fragment[Slot], weights.part[0][kStep], dst);
  }

  HK_DEVICE void exponent(int i) {
    const Pair x = pair(scores.block[i / kBlockPairs][0], i % kBlockPairs);
    exponents[i] = __builtin_elementwise_fma(x, Pair(factor), Pair(-maximum.offset));
  }

  // Scores to weights, in three stages. The first frees the registers that the next scores take:
  // those of block 0 before the first slot (in `step`), of block 1 by slot kChannelSteps.
  template <int Slot>
  HK_DEVICE void softmax_slot() {
    constexpr int kSpan = kSlots * 3 / 4 - 2;
    spread<Slot, 0, kChannelSteps, kBlockPairs>([&](auto i) { exponent(i + kBlockPairs); });
    spread<Slot, 0, kSpan, kPairs>([&](auto i) {
      exponents[i] = {__builtin_amdgcn_exp2f(exponents[i][0]),
                      __builtin_amdgcn_exp2f(exponents[i][1])};
    });
    spread<Slot, 1, kSpan, kPairs>([&](auto i) {
      sum += exponents[i];
      convert<T, i.value % 4>(weights.part[0][i / 4], exponents[i]);
    });
  }

  // The maxima of the next scores, one block after the other as the matrix unit finishes them.
  template <bool kMasked, int Slot>
  HK_DEVICE void max_slot() {
    constexpr int kSpan = kHalf / 2;
    if constexpr (Slot == 0) next_max = kNoScore;
    static_for<0, kKeyBlocks>([&](auto block) {
      spread<Slot, (block.value + 1) * kChannelSteps + 2, kSpan, kBlockPairs>([&](auto i) {
        Block& rows_seen = scores.block[block][0];
        if constexpr (kMasked) {
          mask<block.value, 2 * i.value>(rows_seen);
          mask<block.value, 2 * i.value + 1>(rows_seen);
        }
        max_rows(next_max, next_max, pair(rows_seen, i));
      });
    });
    if constexpr (Slot == kSlots - 2) {
      reduce_halves(next_max, next_max,
                    [](f32 a, f32 b) { return __builtin_elementwise_maximum(a, b); });
    }
  }

  template <int BlockIndex, int I>
  HK_DEVICE void mask(Block& rows) const {
    rows[I] = Matrix::kRows * BlockIndex + Matrix::row(I, 0) > visible ? kNoScore : rows[I];
  }

  // O and its sum are whole up to a tile here, so they can move to the maximum of the next.
  HK_DEVICE void rescale() {
    const ColumnVector shrink = maximum.rise(next_max, factor);
    static_for<0, kChannelBlocks>(
        [&](auto c) { hk::scale(output.block[c][0], output.block[c][0], shrink); });
    sum *= Pair(shrink);
    if (maximum.is_far)
      static_for<0, kKeyBlocks>([&](auto i) { maximum.rebase(scores.block[i][0]); });
  }
};

}  // namespace hk::attention
