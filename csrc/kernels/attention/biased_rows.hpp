// Decode with linear biases (ALiBi): rows of a tile are of several heads, so each lane has the slope
// of its own row.
#pragma once

#include "mask.hpp"

namespace hk::attention {

struct BiasedRows : BiasedScores {
  HK_DEVICE static BiasedRows of(const AttentionPrefillArgs&, ColumnVector slope, f32 factor) {
    return {{factor, slope * (kLog2E / factor)}};
  }
};

// A part's biases are by the distance to the last key that a row sees of it (decode.hpp).
struct DecodeBiased : Dealt<BiasedRows> {
  static constexpr char kName[16] = "alibi";
};

}  // namespace hk::attention
