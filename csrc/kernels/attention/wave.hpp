// What one wave computes: its 32 query rows of one head against every tile of keys and values.
#pragma once

#include "copy_slots.hpp"
#include "lane_stream.hpp"
#include "query_rows.hpp"
#include "softmax.hpp"

namespace hk::attention {

// One wave: 32 query rows of one head against the key tiles that the workgroup streams.
template <class Shape, class Source, class Mask>
class AttentionWave {
  using T = typename Shape::Element;
  using Slots = Step<Shape>;
  using Matrix = typename Slots::Matrix;
  // Codes wait in registers for their turn: a tile less is in LDS.
  static constexpr int kKeyStages = Source::kWidens ? 3 : Shape::kKeyStages;
  static constexpr int kValueStages = kKeyStages + Shape::Turns::kLate;
  static constexpr int kChannelBlocks = Slots::kChannelBlocks, kHalf = Slots::kHalf;
  static constexpr int kChannelSteps = Slots::kChannelSteps, kSlots = Slots::kSlots;

 public:
  using Logits = typename Mask::Logits;
  using Tiles = attention::Tiles<Shape, Source>;
  using KeyTile = typename Tiles::Keys;
  using ValueTile = typename Tiles::Values;
  using Stream =
      Conditional<Source::kByLane, LaneStream<Shape, Source>, KeyValueStream<Shape, Source>>;
  using KeyRing = TileRing<KeyTile, kKeyStages>;
  using ValueRing = TileRing<ValueTile, kValueStages, Shape::Turns::kLate>;
  static constexpr int kRingBytes = KeyRing::kBytes + ValueRing::kBytes;

  // `channels`: of a key.
  HK_DEVICE AttentionWave(const Stream& copies, u32 lds, i32 wave, Lane in, Logits logits,
                          i32 channels_)
      : softmax(logits), stream(copies), turns(wave), key_ring{lds},
        value_ring{lds + KeyRing::kBytes}, lane(in),
        first_key(Shape::part(wave) * Shape::kWaveKeys), channels(channels_) {}

  ResultTile<Shape::kHeadSize, Shape::kWaveRows> output;  // O^T
  Softmax<Shape, Tiles, Logits> softmax;

  // Where the query rows are on their way: in values that are copied after this wave has read them,
  // in step 0 where waves share them.
  static constexpr int kQueryTiles = kValueStages - kKeyStages + 1;
  static constexpr int kQueryLds =
      kRingBytes -
      (QueryRows<Shape>::kShared ? kQueryTiles * ValueTile::kBytes : QueryRows<Shape>::kLdsBytes);
  static constexpr int kLdsBytes = max(kRingBytes, kQueryLds + QueryRows<Shape>::kLdsBytes);
  static_assert(kQueryLds >= 2 * KeyTile::kBytes);

  // Starts to copy K0 and K1. All that is not needed for it comes later.
  HK_DEVICE void copy_first() {
    stream.template start<kLookUpsSuffice>(key_ring.tile(0), key_ring.tile(1));
    set_priority<0>();
    fence_schedule();
  }

  // `last`: the key of this lane's query; `window`: keys up to it that the query sees; `seen`: the
  // first key that one of the wave's sees.
  HK_DEVICE void see(i32 last, i32 window, i32 seen) {
    last_key = last - first_key, before = window - 1, seen_from = seen - first_key;
  }

  // Copies what step -1 does not; K0 and K1 have landed. The other tiles are started late, as they
  // would only stand in the way. `computes`: any step; otherwise the wave only copies.
  HK_DEVICE void start(const QueryRows<Shape>& queries, const Scale& scale, bool computes) {
    key_rows = RowReader<KeyTile>::of(lane, first_key);
    value_columns = ColumnReader<ValueTile>::of(lane, first_key);
    clear();
    key_ring.start_at(0);
    value_ring.start_at(kValueStages - 1);
    rows = key_rows.at(key_ring.tile());
    rows.pin();
    value_columns.pin();
    pin_vector(last_key);
    if constexpr (!QueryRows<Shape>::kShared) {
      // A look-up that was waited for is younger.
      if constexpr (Stream::kLookUps == 0) wait_copies<kStartCopies>();
      queries.load(query);
      wait_lds<0>(query.part[0]);
      scale.apply(query);
      if constexpr (Shape::kWavesPerSimd == 1)
        for (auto& part : query.part[0]) pin_accumulators(part.words);
    }
    if constexpr (kWidens) {
      stream.fill_first(key_ring.tile(0), key_ring.tile(1));
      wait_lds<0>();
    } else {
      wait_copies<0>();
    }
    barrier();
    if (computes) {
      if constexpr (QueryRows<Shape>::kShared) queries.load(query);
      load_first();
    }
    static_for<2, kKeyStages>([&](auto i) {
      constexpr bool kDrains = Source::kScalar && i.value == kKeyStages - 1;
      // As a look-up does, and with it the fragments. Late waves without keys of their own reach a
      // barrier at once: what they wrote of V0 must have landed, too (kHeld: `idle` waits for it).
      constexpr bool kDrainsFirst = kDrains && kWidens && (!kLate || kHeld > 0);
      if constexpr (kDrainsFirst) wait_lds<0>();
      if constexpr (kWidens)
        stream.value_filler.store(value_ring.tile(0), stream.first_values);
      else
        stream.copy_values(value_ring.tile(i - 2));
      if constexpr (kDrains && !kDrainsFirst) wait_lds<0>();
      stream.template advance<kLookUpsSuffice>();
      if constexpr (i.value < kKeyStages - 1) stream.copy_keys(key_ring.tile(i));
    });
    if constexpr (QueryRows<Shape>::kShared) {
      if (computes) {
        if constexpr (Source::kScalar)
          for (auto& part : query.part[0]) pin_vector(part.words);
        else
          wait_lds<kAhead + kStartWrites>(query.part[0]);
        scale.apply(query);
      }
    }
  }

  // No key at all.
  HK_DEVICE void clear() {
    for (auto& row : output.block) {
      fill(row[0], 0);
      pin_vector(row[0]);
    }
  }

  // kThis: O += P V for the tile whose scores are at hand. kNext: the scores of the tile after it,
  // whose first key is `next_key`. kMasked: of which some rows do not see all; where they may not see
  // its beginning, nor that of this tile, values that no row sees may be NaN. Without a next tile
  // `next_key` is the first key of this one.
  template <bool kThis, bool kNext, Masked kMasked>
  HK_DEVICE void step(i32 next_key) {
    visible = last_key - next_key - Tiles::key(0, lane.half);
    const i32 this_key = next_key - kNext * Shape::kTileKeys;
    const ValuesSeen seen{seen_from - this_key, stream.source.count - this_key - first_key};
    const auto loads = [&](auto slot) { load_ahead<kThis, kNext, slot.value>(); };
    const auto weights = [&](auto slot) {
      if constexpr (kThis) softmax.template weigh_slot<slot.value>();
    };
    const auto copies = [&](auto slot) {
      rise<slot.value>();
      copy_slot<slot.value>();
    };
    // Codes are written to LDS before the slot's fragments are loaded: a wait for these is for both.
    // Copies that pass the registers by come last: by llvm-mca and the clock the better order.
    const auto copies_first = [&](auto slot) {
      if constexpr (kWidens) copies(slot);
    };
    const auto copies_last = [&](auto slot) {
      if constexpr (!kWidens) copies(slot);
    };
    const auto maxima = [&](auto slot) {
      if constexpr (kNext) softmax.template max_slot<kMasked, slot.value>(visible, before);
    };

    if constexpr (kThis) {
      if (__builtin_expect(softmax.has_risen(), false)) softmax.rescale(output);
      softmax.begin();
      fence_schedule();
    }
    if constexpr (!kNext && kLate) {  // whose barrier comes before later loads are waited for
      wait_lds<0>();
      drop_first();
    }
    interleave<0, kHalf>(
        [&](auto slot) {
          if constexpr (kNext) score<kThis, slot.value>();
        },
        weights, copies_first, loads, maxima, copies_last);
    end_even_phase<kNext, kThis && kMasked == Masked::kPast>();
    interleave<kHalf, kSlots>(
        [&](auto slot) { drain<kThis, slot.value>(); },
        [&](auto slot) {
          if constexpr (kThis) accumulate<kNext, kMasked, slot.value>(seen);
        },
        weights, copies, [&](auto slot) { prepare_slot<kThis && kNext, slot.value - kHalf>(); },
        loads, maxima);
    if constexpr (!kThis) softmax.begin_rows();
    end_odd_phase<kNext>();
  }

  // A tile that this wave has no part in, but for copying it.
  HK_DEVICE void idle() {
    stream.copy_keys(key_ring.free_tile());
    if constexpr (kWidens) {
      stream.copy_values(value_ring.free_tile());
      // As a look-up does. Values are read a step later than keys.
      if constexpr (!Source::kScalar || kHeld > 0) wait_lds<kWrites>();
    }
    end_even_phase<true, false>();
    if constexpr (!kWidens) stream.copy_values(value_ring.free_tile());
    stream.template advance<kLookUpsSuffice>();
    key_ring.advance();
    value_ring.advance();
    end_odd_phase<true>();
  }

  // By step j's barrier V(j+1) has landed, and of K(j+3) the keys that are read before the next one:
  // of two halves of waves, those that the early ones copy. In flight stay the tiles after these.
  // With four stages: V(j+2), K(j+4) and of early waves V(j+3), of late ones K(j+3). After the last
  // step of a late wave early ones have none either, and V(j+1) may be in flight, too, unless it is
  // late waves that read it.
  // Of tiles with one block of keys (kHeld), K(j+3) is read at once, also what late waves copied: that
  // has landed, too. Not at a wave's last tiles (kEnds, and the last one): others have one more at most.
  template <bool kNext, bool kEnds>
  HK_DEVICE void end_even_phase() const {
    constexpr bool kKeys = kHeld > 0 && kNext && !kEnds && !kWidens;
    constexpr int kLeft = kKeys ? kInFlight - kHeld : kInFlight + kSpare * !kNext;
    turns.template middle<kAwaited || kKeys ? kLeft : arch::kNoWait>();
  }
  // Where waves end at most a tile apart, none needs K(j+3) after the last step of another.
  template <bool kNext>
  HK_DEVICE void end_odd_phase() const {
    constexpr bool kApart = Shape::kQueryRows > Shape::kTileKeys;
    constexpr int kMore = kNext ? 0 : kApart ? kHeld : Stream::Share::kCopies;
    turns.template end<kAwaited ? kInFlight + kMore : arch::kNoWait>();
    set_priority<0>();
  }

 private:
  static constexpr int kAhead = kHalf / 2;  // fragments loaded ahead of their use
  static constexpr bool kLate = Shape::Turns::kLate;
  static constexpr int kWaitSlots = 2;  // slots served by one wait
  static constexpr bool kWidens = Source::kWidens;
  static constexpr int kWrites = Stream::KeyFiller::kWrites;
  // After the queries: K0, K1; in codes also K2, V0, V1.
  static constexpr int kStartCopies = (kWidens ? 5 : 2) * Stream::Share::kCopies;
  static constexpr int kStartWrites = (2 * kKeyStages - 5) * kWrites;  // after the first fragments
  static constexpr int kMostPending = 14;                              // of lgkmcnt
  using Copies = CopySlots<Shape, Source>;
  static_assert(!kWidens || Copies::kTable.keys[Copies::kPieces - 1] <= kHalf - 1 - kAhead,
                "keys are written before the last fragments of keys are loaded: one wait for both");
  static_assert(!kWidens || Copies::kTable.values[Copies::kPieces - 1] <= kSlots - 1 - kAhead,
                "so are values");
  static constexpr int kInFlight = (2 * kKeyStages - 5) * Stream::Share::kCopies + Stream::kLookUps;
  // Copies of keys that late waves do not keep in flight: early ones read them at once.
  static constexpr bool kWhole = Shape::kKeyParts == 1 && Slots::kKeyBlocks == 1;
  static constexpr int kHeld = kLate && kWhole ? Stream::Share::kCopies : 0;
  // Global loads land in order: with turns, a look-up that was taken is younger than all that must
  // have landed.
  static constexpr bool kLookUpsSuffice = Stream::kLookUps > 0 && kLate && !kWidens;
  static constexpr bool kAwaited = !kLookUpsSuffice && !kWidens;
  static constexpr int kSpare = Shape::kKeyParts == 1 ? Stream::Share::kCopies : 0;
  static_assert(kAhead <= kChannelSteps,
                "fragments of the first keys alone are loaded a step ahead");
  // A look-up is a scalar load, which lands with all LDS reads or not at all: here they all have.
  // The next step's first fragments are loaded after it, so that it waits for old reads alone.
  static constexpr int kDrained = kSlots - kAhead / 2;

  Stream stream;
  typename Shape::Turns turns;
  KeyRing key_ring;
  ValueRing value_ring;
  Lane lane;
  i32 first_key;          // in each tile, of those that the wave has a part in
  i32 last_key, visible;  // of this lane's query, from there; the same in the tile at hand
  i32 before;             // keys before it that the query sees
  i32 seen_from;          // by any of the wave's queries, as last_key
  RowReader<KeyTile> key_rows, rows;
  ColumnReader<ValueTile> value_columns, columns;
  typename QueryRows<Shape>::Operand query;
  i32 channels;

  Fragment<T> fragment[kSlots];  // in order of use: K of the next tile, V of this

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
  // Of a tile that does not come. They have landed, and their registers are free from here on.
  HK_DEVICE void drop_first() {
    static_for<0, kAhead>([&](auto i) { pin_vector(fragment[i].words); });
  }
  template <bool kThis, bool kNext, int Slot>
  HK_DEVICE void load_ahead() {
    constexpr int kFragment = Slot + kAhead;
    if constexpr (kFragment < kSlots) {
      if constexpr (reads<kThis, kNext>(kFragment) > 0) load_fragment<kFragment>();
    } else if constexpr (kNext) {
      constexpr int kFrom = Source::kScalar ? kDrained : kSlots - kAhead;
      spread<Slot, kFrom, kSlots - kFrom, kAhead>([&](auto i) { load_fragment<i.value>(); });
    }
  }

  // Of waves on one SIMD, the one that is further in its step comes first: others wait for it.
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

  // The second phase has room: what the next step needs is computed in it. `rows` and `columns`
  // move on as soon as the last fragment of their tile is on its way.
  template <bool kSteady, int Slot>
  HK_DEVICE void prepare_slot() {
    constexpr int kRoom = kHalf / 2;  // from here on no weights are computed
    if constexpr (Slot == kRoom - 1) {
      key_ring.advance();
      rows = key_rows.at(key_ring.tile());
      pin_scalar(key_ring.stage, key_ring.before[0]);
      rows.pin();
    }
    if constexpr (Slot == kRoom) {
      value_ring.advance();
      pin_scalar(value_ring.stage, value_ring.before[0]);
    }
    if constexpr (Slot == kRoom + 1) stream.next_values();
    if constexpr (Slot == kDrained - kHalf) {
      stream.template next_place<kSteady || kLookUpsSuffice>();
      columns = value_columns.at(value_ring.tile());
      columns.pin();
    }
    if constexpr (Slot == kDrained - kHalf + 1) {
      stream.find_next();
      stream.next_keys();
    }
  }

  // Before `next_place` takes what `find_next` has started.
  template <bool kThis, int Slot>
  HK_DEVICE static void drain() {
    if constexpr (kThis && Source::kScalar && Slot == kDrained) {
      wait_lds<0>();
      fence_schedule();
    }
  }

  // LDS reads that fragment `i` takes (from kSlots on: of the next step).
  template <bool kThis, bool kNext>
  HK_DEVICE static constexpr int reads(int i) {
    return i >= kHalf && i < kSlots ? kThis * Tiles::kValueReads : kNext;
  }
  // Waits for two slots at once. What was loaded for later slots may stay in flight.
  template <bool kThis, bool kNext, int Slot>
  HK_DEVICE void wait_fragments() {
    if constexpr (Slot % kWaitSlots == 0) {
      constexpr int kPending = [] {
        int pending = 0;
        const int loaded = Source::kScalar ? min(Slot + kAhead, kSlots) : Slot + kAhead;
        for (int i = Slot + kWaitSlots; i < loaded; ++i) pending += reads<kThis, kNext>(i);
        // What was written after the last fragment that is waited for was loaded.
        for (int slot = Slot - kAhead + 2; slot < Slot; ++slot) pending += Copies::writes(slot);
        pending += kStartWrites * (!kThis && Slot + 1 < kAhead);
        return min(pending, kMostPending);
      }();
      constexpr bool kLanded = Source::kScalar && (Slot >= kDrained || (!kThis && Slot < kAhead));
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
    // By lane there was something to copy past a row's end, and it may be NaN.
    if constexpr (Shape::kPadded && Source::kByLane) {
      i32 rest = channels - kStep * Matrix::kDepth - Matrix::depth(0, lane.half);
      // A window has no scalar registers for the masks of all 16 steps.
      if constexpr (Mask::kWindow && kStep >= 15) pin_vector(rest);
      if (rest <= 0) fragment[Slot].words = 0;
    }
    Block& dst = softmax.scores.block[kBlock][0];
    mma(dst, fragment[Slot], query.part[0][kStep], kStep == 0 ? Block(0.0f) : dst);
  }

  struct ValuesSeen {
    i32 first, end;  // of the wave's keys of a tile
  };
  template <bool kNext, Masked kMasked, int Slot>
  HK_DEVICE void accumulate(ValuesSeen seen) {
    constexpr int kStep = (Slot - kHalf) / kChannelBlocks, kBlock = (Slot - kHalf) % kChannelBlocks;
    wait_fragments<true, kNext, Slot>();
    if constexpr (!kNext && !kLate && Slot == kHalf) drop_first();
    // Values past the last key are in the last tile alone, and in a first one before it that is to be
    // cleared. Codes that nobody sees are not in LDS (the streams' `seen`).
    constexpr bool kClears = kMasked == Masked::kOutside && !kWidens;
    const auto key_of = [](int element) { return Tiles::key(element, 0); };
    const auto rest = [&](i32 keys) {  // from this lane's first of the fragment on
      i32 own = keys - kStep * Matrix::kDepth - Tiles::key(0, lane.half);
      // Masks that fragments share would take registers that are not there.
      if constexpr (kClears && Shape::kWavesPerSimd > 2) pin_vector(own);
      return own;
    };
    if constexpr (kClears) keep_from(fragment[Slot], fragment[Slot], rest(seen.first), key_of);
    if constexpr (!Source::kBounded && (!kNext || kClears))
      keep_below(fragment[Slot], fragment[Slot], rest(seen.end), key_of);
    Block& dst = output.block[kBlock][0];
    mma(dst, fragment[Slot], softmax.weights.part[0][kStep], dst);
  }
};

}  // namespace hk::attention
