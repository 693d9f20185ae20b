// The wave of an attention kernel: 32 query rows against every tile of keys and values.
#pragma once

#include "fragments.hpp"
#include "query_rows.hpp"
#include "softmax.hpp"
#include "unseen.hpp"

namespace hk::attention {

// One wave: 32 query rows against the key tiles that the workgroup streams.
template <class Shape, class Source, class Mask>
class AttentionWave {
  using T = typename Shape::Element;
  using Slots = Step<Shape>;
  using Matrix = typename Slots::Matrix;
  using Landing = attention::Landing<Shape, Source>;
  using Copies = CopySlots<Shape, Source>;
  using Queries = QueryRows<Shape>;
  static constexpr bool kLate = Shape::Turns::kLate;
  static constexpr int kKeyStages = Landing::kKeyStages, kValueStages = kKeyStages + kLate;
  static constexpr int kChannelBlocks = Slots::kChannelBlocks, kHalf = Slots::kHalf;
  static constexpr int kChannelSteps = Slots::kChannelSteps, kSlots = Slots::kSlots;

 public:
  using Logits = typename Mask::Logits;
  using Tiles = attention::Tiles<Shape, Source>;
  using KeyTile = typename Tiles::Keys;
  using ValueTile = typename Tiles::Values;
  using Stream = attention::Stream<Shape, Source>;
  using KeyRing = TileRing<KeyTile, kKeyStages>;
  using ValueRing = TileRing<ValueTile, kValueStages, kLate>;
  static constexpr int kRingBytes = KeyRing::kBytes + ValueRing::kBytes;

  // `channels`: of a key.
  HK_DEVICE AttentionWave(const Stream& copies, u32 lds, i32 wave, Lane in, Logits logits,
                          i32 channels)
      : softmax(logits), stream(copies), turns(wave), key_ring{lds},
        value_ring{lds + KeyRing::kBytes}, lane(in),
        first_key(Shape::part(wave) * Shape::kWaveKeys), fragments{channels} {}

  ResultTile<Shape::kHeadSize, Shape::kWaveRows> output;  // O^T
  Softmax<Shape, Tiles, Logits> softmax;

  // Query rows arrive in the LDS of values that are copied after this wave has read the queries, in
  // step 0 where waves share them.
  static constexpr int kQueryTiles = kValueStages - kKeyStages + 1;
  static constexpr int kQueryLds =
      max(kRingBytes - (Queries::kShared ? kQueryTiles * ValueTile::kBytes : Queries::kLdsBytes),
          2 * KeyTile::kBytes);
  static constexpr int kLdsBytes = max(kRingBytes, kQueryLds + Queries::kLdsBytes);

  // Starts to copy K0 and K1. All that is not needed for it comes later.
  HK_DEVICE void copy_first() {
    stream.template start<Landing::kLookUpsSuffice>(key_ring.tile(0), key_ring.tile(1));
    set_priority<0>();
    fence_schedule();
  }

  // Between requests: waves without rows would otherwise carry on fragments of the one before.
  HK_DEVICE void forget() { fragments.forget(); }

  // `last`: the key of this lane's query; `window`: keys up to it that the query sees; `seen`: the
  // first key that one of the wave's queries sees.
  HK_DEVICE void see(i32 last, i32 window, i32 seen) {
    last_key = last - first_key, before = window - 1, seen_from = seen - first_key;
  }

  // Copies what step -1 does not; K0 and K1 have landed. The other tiles are started late, as they
  // would only stand in the way. `computes`: any step; otherwise the wave only copies.
  HK_DEVICE void start(const Queries& queries, const Scale& scale, bool computes) {
    fragments.start(lane, first_key);
    clear();
    key_ring.start_at(0);
    value_ring.start_at(kValueStages - 1);
    fragments.read_keys(key_ring.tile());
    fragments.pin_readers();
    pin_vector(last_key);
    if constexpr (!Queries::kShared) take_own(queries, scale);
    Landing::land_first(stream, key_ring);
    barrier();
    if (computes) {
      if constexpr (Queries::kShared) queries.load(fragments.query);
      fragments.load_first();
    }
    static_for<2, kKeyStages>([&](auto i) {
      constexpr bool kDrains = Source::kScalar && i.value == kKeyStages - 1;
      Landing::template start_values<kDrains, i.value - 2>(stream, value_ring);
      stream.template advance<Landing::kLookUpsSuffice>();
      if constexpr (i.value < kKeyStages - 1) stream.copy_keys(key_ring.tile(i));
    });
    if constexpr (Queries::kShared)
      if (computes) take_shared(scale);
  }

  // Sets the output to zero; without any key that is all.
  HK_DEVICE void clear() {
    for (auto& row : output.block) {
      fill(row[0], 0);
      pin_vector(row[0]);
    }
  }

  // kThis: adds P V to O for the tile whose scores are at hand. kNext: computes the scores of the
  // tile after it. `next_key` is the first key of that tile, or of this one if no tile follows.
  // kMasked: some rows do not see all of the next tile. If they may not see the beginning of it or
  // of this tile, values that no row sees may be NaN.
  template <bool kThis, bool kNext, Masked kMasked>
  HK_DEVICE void step(i32 next_key) {
    visible = last_key - next_key - Tiles::key(0, lane.half);
    const i32 this_key = next_key - kNext * Shape::kTileKeys;
    const ValuesSeen seen{seen_from - this_key, stream.source.count - this_key - first_key};
    const auto loads = [&](auto slot) {
      fragments.template load_ahead<kThis, kNext, slot.value>();
    };
    const auto weights = [&](auto slot) {
      if constexpr (kThis) softmax.template weigh_slot<kMasked, slot.value>();
    };
    const auto copies = [&](auto slot) {
      rise<slot.value>();
      copy_slot<slot.value>();
    };
    const auto copies_first = [&](auto slot) {
      if constexpr (Landing::kCopiesFirst) copies(slot);
    };
    const auto copies_last = [&](auto slot) {
      if constexpr (!Landing::kCopiesFirst) copies(slot);
    };
    const auto maxima = [&](auto slot) {
      if constexpr (kNext) softmax.template max_slot<kMasked, slot.value>(visible, before);
    };

    if constexpr (kThis) {
      if (__builtin_expect(softmax.has_risen(), false)) softmax.rescale(output);
      softmax.template begin<kMasked>();
      fence_schedule();
    }
    if constexpr (!kNext && kLate) {  // whose barrier comes before later loads are waited for
      wait_lds<0>();
      fragments.drop_first();
    }
    interleave<0, kHalf>(
        [&](auto slot) {
          if constexpr (kNext) score<kThis, slot.value>();
        },
        weights, copies_first, loads, maxima, copies_last);
    end_even_phase<kNext, kThis && kMasked == Masked::kPast>();
    interleave<kHalf, kSlots>(
        [&](auto slot) { fragments.template drain<kThis, slot.value>(); },
        [&](auto slot) {
          if constexpr (kThis) accumulate<kNext, kMasked, slot.value>(seen);
        },
        weights, copies, [&](auto slot) { prepare_slot<kThis && kNext, slot.value - kHalf>(); },
        loads, maxima);
    if constexpr (!kThis) softmax.begin_rows();
    end_odd_phase<kNext>();
  }

  // Passes a tile of which this wave computes nothing: it copies its share, and keeps step.
  HK_DEVICE void idle() {
    Landing::idle_before(stream, key_ring.free_tile(), value_ring.free_tile());
    end_even_phase<true, false>();
    Landing::idle_after(stream, value_ring.free_tile());
    stream.template advance<Landing::kLookUpsSuffice>();
    key_ring.advance();
    value_ring.advance();
    end_odd_phase<true>();
  }

 private:
  Stream stream;
  typename Shape::Turns turns;
  KeyRing key_ring;
  ValueRing value_ring;
  Lane lane;
  i32 first_key;          // in each tile, of those that the wave has a part in
  i32 last_key, visible;  // of this lane's query, from there; the same in the tile at hand
  i32 before;             // keys before it that the query sees
  i32 seen_from;          // by any of the wave's queries, as last_key
  Fragments<Shape, Source> fragments;

  // Takes query rows that no other wave reads.
  HK_DEVICE void take_own(const Queries& queries, const Scale& scale) {
    // A look-up that was waited for is younger.
    if constexpr (Stream::kLookUps == 0) wait_copies<Landing::kStartCopies>();
    queries.load(fragments.query);
    wait_lds<0>(fragments.query.part[0]);
    scale.apply(fragments.query);
    if constexpr (Shape::kWavesPerSimd == 1)
      for (auto& part : fragments.query.part[0]) pin_accumulators(part.words);
  }
  // Takes query rows of which several waves have copied a part; a scalar look-up has waited for
  // them.
  HK_DEVICE void take_shared(const Scale& scale) {
    if constexpr (Source::kScalar)
      for (auto& part : fragments.query.part[0]) pin_vector(part.words);
    else
      wait_lds<Slots::kAhead + Fragments<Shape, Source>::kStartWrites>(fragments.query.part[0]);
    scale.apply(fragments.query);
  }

  template <bool kNext, bool kEnds>
  HK_DEVICE void end_even_phase() const {
    turns.template middle<Landing::template pending_in_the_middle<kNext, kEnds>()>();
  }
  template <bool kNext>
  HK_DEVICE void end_odd_phase() const {
    turns.template end<Landing::template pending_at_the_end<kNext>()>();
    set_priority<0>();
  }

  // Raises the priority within a step: of waves on one SIMD the one that is further comes first,
  // because others wait for it.
  template <int Slot>
  HK_DEVICE static void rise() {
    if constexpr (Slot == kSlots / 8) set_priority<1>();
    if constexpr (Slot == kSlots / 2) set_priority<2>();
  }

  template <int Slot>
  HK_DEVICE void copy_slot() {
    static_for<0, Copies::kPieces>([&](auto i) {
      if constexpr (Slot == Copies::kTable.keys[i])
        stream.template copy_keys<i.value>(key_ring.free_tile());
      if constexpr (Slot == Copies::kTable.values[i])
        stream.template copy_values<i.value>(value_ring.free_tile());
    });
  }

  // The second phase has room, so what the next step needs is computed in it. The fragments move on
  // to the next tile as soon as the last one of theirs is on its way.
  template <bool kSteady, int Slot>
  HK_DEVICE void prepare_slot() {
    constexpr int kRoom = kHalf / 2;  // from here on no weights are computed
    constexpr int kDrained = Slots::kDrained - kHalf;
    // A short phase has no slots of their own for these two, which come before the next place.
    constexpr int kValueRing = min(kRoom, kDrained - 1), kValueSpan = min(kRoom + 1, kDrained - 1);
    if constexpr (Slot == kRoom - 1) {
      key_ring.advance();
      fragments.read_keys(key_ring.tile());
      pin_scalar(key_ring.stage, key_ring.before[0]);
      fragments.pin_rows();
    }
    if constexpr (Slot == kValueRing) {
      value_ring.advance();
      pin_scalar(value_ring.stage, value_ring.before[0]);
    }
    if constexpr (Slot == kValueSpan) stream.next_values();
    if constexpr (Slot == kDrained) {
      stream.template next_place<kSteady || Landing::kLookUpsSuffice>();
      fragments.read_values(value_ring.tile());
      fragments.pin_columns();
    }
    if constexpr (Slot == kDrained + 1) {
      stream.find_next();
      stream.next_keys();
    }
  }

  template <bool kThis, int Slot>
  HK_DEVICE void score() {
    constexpr int kBlock = Slot / kChannelSteps, kStep = Slot % kChannelSteps;
    fragments.template wait<kThis, true, Slot>();
    clear_channels<Shape, Source, Mask, kStep>(fragments[Slot], fragments.channels, lane);
    Block& dst = softmax.scores.block[kBlock][0];
    mma(dst, fragments[Slot], fragments.query.part[0][kStep], kStep == 0 ? Block(0.0f) : dst);
  }

  template <bool kNext, Masked kMasked, int Slot>
  HK_DEVICE void accumulate(ValuesSeen seen) {
    constexpr int kStep = (Slot - kHalf) / kChannelBlocks, kBlock = (Slot - kHalf) % kChannelBlocks;
    fragments.template wait<true, kNext, Slot>();
    if constexpr (!kNext && !kLate && Slot == kHalf) fragments.drop_first();
    clear_values<Shape, Source, !kNext, kMasked, kStep>(fragments[Slot], seen, lane);
    Block& dst = output.block[kBlock][0];
    mma(dst, fragments[Slot], softmax.weights.part[0][kStep], dst);
  }
};

}  // namespace hk::attention
