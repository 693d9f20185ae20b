// The fragments of keys and values that a wave reads from LDS, a few slots ahead of their use.
#pragma once

#include "copy_slots.hpp"
#include "landing.hpp"
#include "query_rows.hpp"

namespace hk::attention {

// When the first fragments of the next step are loaded, and what has landed in a slot. With global
// look-ups, or none, the only LDS traffic is that of fragments and widened codes.
template <class Shape, bool Scalar>
struct FragmentSlots {
  using Slots = Step<Shape>;
  static constexpr int kNextStep = Slots::kSlots - Slots::kAhead;  // loads from this slot on

  static constexpr int loaded(int slot) { return slot + Slots::kAhead; }
  static constexpr bool landed(int, bool) { return false; }
  template <bool kThis, int Slot>
  HK_DEVICE static void drain() {}
};

// A scalar look-up lands with all LDS reads or not at all, so once a step all reads are waited for.
// The fragments of the next step are loaded after that, so that only old reads are.
template <class Shape>
struct FragmentSlots<Shape, true> {
  using Slots = Step<Shape>;
  static constexpr int kNextStep = Slots::kDrained;

  static constexpr int loaded(int slot) { return min(slot + Slots::kAhead, Slots::kSlots); }
  static constexpr bool landed(int slot, bool is_first_step) {
    return slot >= Slots::kDrained || (is_first_step && slot < Slots::kAhead);
  }
  // Before `next_place` takes what `find_next` has started.
  template <bool kThis, int Slot>
  HK_DEVICE static void drain() {
    if constexpr (kThis && Slot == Slots::kDrained) {
      wait_lds<0>();
      fence_schedule();
    }
  }
};

// `kThis` and `kNext` say whether a step multiplies its own values, and the keys of the next one.
template <class Shape, class Source>
class Fragments {
  using T = typename Shape::Element;
  using Slots = Step<Shape>;
  using Lay = Tiles<Shape, Source>;
  using KeyTile = typename Lay::Keys;
  using ValueTile = typename Lay::Values;
  using When = FragmentSlots<Shape, Source::kScalar>;
  using Copies = CopySlots<Shape, Source>;
  static constexpr int kHalf = Slots::kHalf, kSlots = Slots::kSlots, kAhead = Slots::kAhead;
  static constexpr int kChannelBlocks = Slots::kChannelBlocks;
  static constexpr int kChannelSteps = Slots::kChannelSteps;
  static constexpr int kWaitSlots = 2;     // slots served by one wait
  static constexpr int kMostPending = 14;  // of lgkmcnt
  static_assert(kWaitSlots == 2 && Slots::kDrained % kWaitSlots == 0);
  static_assert(kAhead <= kChannelSteps,
                "fragments of the first keys alone are loaded a step ahead");

 public:
  // LDS writes of codes after the first fragments were loaded.
  static constexpr int kStartWrites =
      (2 * Landing<Shape, Source>::kKeyStages - 5) * Stream<Shape, Source>::KeyFiller::kWrites;

  HK_DEVICE explicit Fragments(i32 channels_) : channels(channels_) {}
  HK_DEVICE Fragment<T>& operator[](int slot) { return fragment[slot]; }

  // `first_key`: in each tile, of those that the wave has a part in.
  HK_DEVICE void start(Lane lane, i32 first_key) {
    key_rows = RowReader<KeyTile>::of(lane, first_key);
    value_columns = ColumnReader<ValueTile>::of(lane, first_key);
  }
  HK_DEVICE void pin_readers() {
    rows.pin();
    value_columns.pin();
  }
  // Moves to a tile: fragments that are loaded from here on are of this one.
  HK_DEVICE void read_keys(KeyTile tile) { rows = key_rows.at(tile); }
  HK_DEVICE void read_values(ValueTile tile) { columns = value_columns.at(tile); }
  HK_DEVICE void pin_rows() { rows.pin(); }
  HK_DEVICE void pin_columns() { columns.pin(); }

  HK_DEVICE void load_first() {
    static_for<0, kAhead>([&](auto i) { load_one<i.value>(); });
  }
  // Frees the registers of fragments of a tile that does not come. They have landed.
  HK_DEVICE void drop_first() {
    static_for<0, kAhead>([&](auto i) { pin_vector(fragment[i].words); });
  }
  // Gives them registers that hold anything, instead of what an earlier request has left elsewhere.
  HK_DEVICE void forget() {
    static_for<0, kAhead>([&](auto i) { fragment[i].words = 0; });
  }
  template <bool kThis, bool kNext, int Slot>
  HK_DEVICE void load_ahead() {
    constexpr int kFragment = Slot + kAhead;
    if constexpr (kFragment < kSlots) {
      if constexpr (reads<kThis, kNext>(kFragment) > 0) load_one<kFragment>();
    } else if constexpr (kNext) {
      constexpr int kFrom = When::kNextStep;
      spread<Slot, kFrom, kSlots - kFrom, kAhead>([&](auto i) { load_one<i.value>(); });
    }
  }
  template <bool kThis, int Slot>
  HK_DEVICE static void drain() {
    When::template drain<kThis, Slot>();
  }
  // Waits for two slots at once. What was loaded for later slots may stay in flight.
  template <bool kThis, bool kNext, int Slot>
  HK_DEVICE void wait() {
    if constexpr (Slot % kWaitSlots == 0) {
      constexpr int kPending = [] {
        int pending = 0;
        for (int i = Slot + kWaitSlots; i < When::loaded(Slot); ++i)
          pending += reads<kThis, kNext>(i);
        // Codes that were written after the last fragment that is waited for was loaded.
        for (int slot = Slot - kAhead + 2; slot < Slot; ++slot) pending += Copies::writes(slot);
        pending += kStartWrites * (!kThis && Slot + 1 < kAhead);
        return min(pending, kMostPending);
      }();
      if constexpr (When::landed(Slot, !kThis))
        pin_vector(fragment[Slot].words, fragment[Slot + 1].words);
      else
        wait_lds<kPending>(fragment[Slot], fragment[Slot + 1]);
    }
  }

 private:
  RowReader<KeyTile> key_rows, rows;
  ColumnReader<ValueTile> value_columns, columns;

 public:
  typename QueryRows<Shape>::Operand query;
  i32 channels;

 private:
  Fragment<T> fragment[kSlots];  // in order of use: K of the next tile, V of this one

  // K (block, step) for slots 0 to kHalf - 1, V (step, block) for the others.
  template <int I>
  HK_DEVICE void load_one() {
    if constexpr (I < kHalf)
      load<I / kChannelSteps, I % kChannelSteps>(fragment[I], rows);
    else
      load<(I - kHalf) % kChannelBlocks, (I - kHalf) / kChannelBlocks>(fragment[I], columns);
  }
  // LDS reads that fragment `i` takes. From kSlots on it belongs to the next step.
  template <bool kThis, bool kNext>
  HK_DEVICE static constexpr int reads(int i) {
    return i >= kHalf && i < kSlots ? kThis * Lay::kValueReads : kNext;
  }
};

}  // namespace hk::attention
