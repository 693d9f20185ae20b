// The slots of a step in which a wave copies its share of the tiles to come, piece by piece.
#pragma once

#include "tile_filler.hpp"

namespace hk::attention {

// Copies of 16-bit tiles are placed where the registers for their addresses are free. Codes are
// widened early in a step, so that the waits for later fragments cover what was written. Their
// pieces lie apart where registers are free for it: bunched conversions would hold up the matrix
// unit.
template <class Shape, class Source>
struct CopySlots {
  static constexpr int kHalf = Step<Shape>::kHalf;
  using Filler = TileFiller<typename Shape::Tile, Shape, Source>;
  static constexpr int kPieces = Filler::kPieces;
  struct Table {
    int keys[8], values[8];  // by piece
  };

  // Where a step has few slots, they have several pieces: keys first, and values before the ring of
  // values moves on.
  static constexpr Table full_slots() {
    Table found = {};
    for (int i = 0; i < kPieces; ++i) {
      found.keys[i] = i * (kHalf / 2) / kPieces;
      found.values[i] = kHalf / 2 + i * kHalf / kPieces;
    }
    return found;
  }

  static constexpr Table table() {
    if (Shape::kWavesPerSimd == 1 && Shape::kKeyParts == 1 && kHalf <= 8) return full_slots();
    if (kPieces == 1) return {{1}, {kHalf + kHalf / 2}};
    // A wave alone on its SIMD has no two pieces in one slot, and none where it waits for
    // fragments.
    if (!Source::kWidens) return {{1, 3, 5, 7}, {kHalf + 1, kHalf + 3, kHalf + 5, kHalf + 7}};
    if (kPieces == 8) return {{0, 1, 2, 3, 4, 5, 6, 7}, {16, 17, 18, 19, 20, 21, 22, 23}};
    if (Shape::kKeyParts > 1 || (!Shape::Turns::kLate && Source::kSplit))
      return {{0, 0, 2, 2}, {4, 4, 6, 8}};
    if (Shape::Turns::kLate ? Source::kSplit : Source::kByLane) return {{1, 1, 1, 1}, {2, 2, 2, 2}};
    return {{1, 1, 1, 1}, {2, 4, 6, 8}};
  }
  static constexpr Table kTable = table();
  static_assert(!Source::kWidens || kTable.keys[kPieces - 1] <= kHalf - 1 - Step<Shape>::kAhead,
                "keys are written before the last fragments of keys are loaded: one wait for both");
  static_assert(!Source::kWidens ||
                    kTable.values[kPieces - 1] <= 2 * kHalf - 1 - Step<Shape>::kAhead,
                "so are values");

  // The number of LDS writes of the wave that start in a slot.
  HK_DEVICE static constexpr int writes(int slot) {
    int found = 0;
    for (int i = 0; i < kPieces; ++i)
      if (Filler::writes(i)) found += (kTable.keys[i] == slot) + (kTable.values[i] == slot);
    return found;
  }
};

}  // namespace hk::attention
