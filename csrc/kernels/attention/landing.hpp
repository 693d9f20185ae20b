// How tiles of keys and values land in LDS, and what a wave waits for before it reads them.
//
// A cache of 16-bit elements is copied past the registers (CopiedTiles). FP8 codes wait in
// registers and are written to LDS as 16-bit elements (WidenedTiles). The wave (wave.hpp) is the
// same for both.
#pragma once

#include "lane_stream.hpp"

namespace hk::attention {

template <class Shape, class Source>
using Stream =
    Conditional<Source::kByLane, LaneStream<Shape, Source>, KeyValueStream<Shape, Source>>;

// The copies of keys that late waves do not keep in flight, because early waves read them at once.
// Only tiles with one block of keys have any.
template <class Shape, class Stream>
constexpr int kHeld = Shape::Turns::kLate && Shape::kKeyParts == 1 && Step<Shape>::kKeyBlocks == 1
                          ? Stream::Share::kCopies
                          : 0;

// The copies land by themselves, in the order in which they were started.
template <class Shape, class Source>
struct CopiedTiles {
  using Stream = attention::Stream<Shape, Source>;
  static constexpr int kCopies = Stream::Share::kCopies;
  static constexpr int kKeyStages = Shape::kKeyStages;
  static constexpr int kStartCopies = 2 * kCopies;  // K0 and K1, started after the queries
  static constexpr bool kCopiesFirst = false;       // in a slot: by llvm-mca and the clock slower
  // Global loads land in order. With turns, a look-up is younger than all copies that must have
  // landed, so a wave that has used it need not wait for them.
  static constexpr bool kLookUpsSuffice = Stream::kLookUps > 0 && Shape::Turns::kLate;

  template <class KeyRing>
  HK_DEVICE static void land_first(Stream&, const KeyRing&) {
    wait_copies<0>();
  }
  // `kDrains`: waits for all LDS reads, among which a scalar look-up lands.
  template <bool kDrains, int Index, class ValueRing>
  HK_DEVICE static void start_values(Stream& stream, const ValueRing& values) {
    stream.copy_values(values.tile(Index));
    if constexpr (kDrains) wait_lds<0>();
  }
  // The copies of a tile of which the wave reads nothing, on either side of the middle of the step.
  template <class KeyTile, class ValueTile>
  HK_DEVICE static void idle_before(Stream& stream, KeyTile keys, ValueTile) {
    stream.copy_keys(keys);
  }
  template <class ValueTile>
  HK_DEVICE static void idle_after(Stream& stream, ValueTile values) {
    stream.copy_values(values);
  }

  // Copies that may stay in flight at the barrier in the middle of step j, and at its end. V(j+1)
  // has landed then, and of K(j+3) the keys that are read before the next barrier: of two halves of
  // waves those that the early ones copy. The tiles after these stay in flight. With four stages
  // these are V(j+2), K(j+4), of early waves V(j+3) and of late ones K(j+3). After the last step of
  // a late wave the early ones have none either. V(j+1) may then be in flight too, unless late
  // waves read it. Tiles with one block of keys (kHeld) are read at once, so all of K(j+3) has
  // landed. Not so at a wave's last tiles (`kEnds`, and the last one): others have one more at
  // most.
  template <bool kNext, bool kEnds>
  static constexpr int pending_in_the_middle() {
    constexpr bool kKeys = kHeld<Shape, Stream> > 0 && kNext && !kEnds;
    constexpr int kSpare = Shape::kKeyParts == 1 ? kCopies : 0;
    if (!kAwaited && !kKeys) return arch::kNoWait;
    return kKeys ? kInFlight - kHeld<Shape, Stream> : kInFlight + kSpare * !kNext;
  }
  // No wave needs K(j+3) after the last step of another if all end at most a tile apart.
  template <bool kNext>
  static constexpr int pending_at_the_end() {
    constexpr bool kApart = Shape::kQueryRows > Shape::kTileKeys;
    constexpr int kMore = kNext ? 0 : kApart ? kHeld<Shape, Stream> : kCopies;
    return kAwaited ? kInFlight + kMore : arch::kNoWait;
  }

 private:
  static constexpr bool kAwaited = !kLookUpsSuffice;
  static constexpr int kInFlight = (2 * kKeyStages - 5) * kCopies + Stream::kLookUps;
};

// The wave writes the tiles itself. Its waits for fragments, which are in order, cover the writes.
template <class Shape, class Source>
struct WidenedTiles {
  using Stream = attention::Stream<Shape, Source>;
  static constexpr int kKeyStages = 3;  // one less than copies take, as codes wait in registers
  static constexpr int kStartCopies = 5 * Stream::Share::kCopies;  // K0, K1, K2, V0 and V1
  // Codes are written before the slot's fragments are loaded: one wait serves both.
  static constexpr bool kCopiesFirst = true;
  static constexpr bool kLookUpsSuffice = false;

  template <class KeyRing>
  HK_DEVICE static void land_first(Stream& stream, const KeyRing& keys) {
    stream.fill_first(keys.tile(0), keys.tile(1));
    wait_lds<0>();
  }
  template <bool kDrains, int Index, class ValueRing>
  HK_DEVICE static void start_values(Stream& stream, const ValueRing& values) {
    // A look-up drains the fragments as well. Late waves without keys of their own reach a barrier
    // at once, and what they wrote of V0 must have landed (kHeld: idle_before waits for it).
    constexpr bool kBefore = !Shape::Turns::kLate || kHeld<Shape, Stream> > 0;
    if constexpr (kDrains && kBefore) wait_lds<0>();
    stream.value_filler.store(values.tile(Index), stream.first_values);
    if constexpr (kDrains && !kBefore) wait_lds<0>();
  }
  template <class KeyTile, class ValueTile>
  HK_DEVICE static void idle_before(Stream& stream, KeyTile keys, ValueTile values) {
    stream.copy_keys(keys);
    stream.copy_values(values);
    // A scalar look-up waits as well. Values are read a step later than keys.
    if constexpr (!Source::kScalar || kHeld<Shape, Stream> > 0)
      wait_lds<Stream::KeyFiller::kWrites>();
  }
  template <class ValueTile>
  HK_DEVICE static void idle_after(Stream&, ValueTile) {}

  template <bool, bool>
  static constexpr int pending_in_the_middle() {
    return arch::kNoWait;
  }
  template <bool>
  static constexpr int pending_at_the_end() {
    return arch::kNoWait;
  }
};

template <class Shape, class Source>
using Landing =
    Conditional<Source::kWidens, WidenedTiles<Shape, Source>, CopiedTiles<Shape, Source>>;

}  // namespace hk::attention
