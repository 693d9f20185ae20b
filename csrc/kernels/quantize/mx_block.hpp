// A lane's block, 32 neighbours of a row: how it is loaded, and rotated with its neighbours.
#pragma once

#include "hk/args/quantize_mx.hpp"
#include "pieces.hpp"

namespace hk::quantize {

constexpr int kBlock = 32;

// Place of a lane's block. Neighbouring lanes have the neighbouring blocks of a row, four of them
// in a packed result and 16 in rows.
struct Place {
  static constexpr u32 kRows = 32, kColumns = 256;  // of a workgroup's tile of a packed result
  static constexpr u32 kGroup = 16;                 // rows of a wave in it
  u32 first_row, first_column;                      // of the wave
  u32 row, column;                                  // of the lane, from those

  HK_DEVICE Place(const QuantizeMxArgs& args, u32 tile_row, u32 tile_column, u32 wave) {
    constexpr u32 kWaveColumns = kColumns * kWider / 4;
    const bool packed = args.packed;
    first_row = packed ? tile_row * kRows + wave / 2 * kGroup : tile_row * (kRows / kWider);
    first_column = packed ? tile_column * kColumns + wave % 2 * (kColumns / 2)
                          : tile_column * (kColumns * kWider) + wave * kWaveColumns;
    const u32 shift = packed ? 2 : 4, lane = this_lane().id;
    row = lane >> shift;
    column = (lane & ((1 << shift) - 1)) * kBlock;
  }
  HK_DEVICE bool exists(const QuantizeMxArgs& args) const {
    return first_row + row < u32(args.m) && first_column + column < u32(args.k);
  }
};

// The elements in float32. Those with an even number and those with an odd one are apart, as the
// conversion to 6 bits takes them.
struct Block {
  Vec<f32, 16> even, odd;
};

template <class T>
HK_DEVICE Block load_block(const QuantizeMxArgs& args, const Place& place) {
  constexpr int kElements = Piece<T>::kElements, kPieces = kBlock / kElements;
  const BoundedView x(address(args.x) + offset(place.first_row, args.x_row) * sizeof(T), kNowhere);
  const u32 inside = place.row * u32(args.x_row) + place.first_column + place.column;
  const u32 at = place.exists(args) ? inside * u32(sizeof(T)) : kNowhere;
  Piece<T> pieces[kPieces];
  static_for<0, kPieces>([&](auto i) HK_INLINED { pieces[i] = {load_words<4>(x, at + 16 * i)}; });
  Block block;
  static_for<0, kBlock / 2>([&](auto i) HK_INLINED {
    const Pair both = pieces[2 * i / kElements].values(i % (kElements / 2));
    block.even[i.value] = both[0], block.odd[i.value] = both[1];
  });
  pin_vector(block.even, block.odd);  // in their place, whether they are rotated or not
  return block;
}

// The sum and the difference of the two, in one packed instruction: the compiler takes four.
HK_DEVICE Pair sum_and_difference(Pair both) {
  Pair result;
  asm("v_pk_add_f32 %0, %1, %1 op_sel:[0,1] op_sel_hi:[0,1] neg_hi:[0,1]"
      : "=v"(result)
      : "v"(both));
  return result;
}

HK_DEVICE void set_pair(Vec<f32, 16>& values, int index, Pair both) {
  values[2 * index] = both[0], values[2 * index + 1] = both[1];
}

// Values that are `Distance` apart become their sums and differences.
template <int Distance>
HK_DEVICE void butterfly(Vec<f32, 16>& values) {
  static_for<0, 8>([&](auto i) HK_INLINED {
    if constexpr (Distance == 1) {
      set_pair(values, i, sum_and_difference(pair(values, i)));
    } else if constexpr ((2 * i & Distance) == 0) {
      const Pair a = pair(values, i), b = pair(values, i + Distance / 2);
      set_pair(values, i, a + b);
      set_pair(values, i + Distance / 2, a - b);
    }
  });
}

// The same between lanes of a quad, `Distance` apart. A product by one or minus one is exact, so
// that the fused sum is rounded as any other.
template <int Distance>
HK_DEVICE void butterfly_lanes(Vec<f32, 16>& values) {
  constexpr int kSwap = Distance == 1 ? 0xb1 : 0x4e;  // quad_perm:[1,0,3,2], [2,3,0,1]
  const f32 sign = this_lane().id & Distance ? -1.0f : 1.0f;
  const auto other = [&](f32 own) HK_INLINED {
    return bit_cast<f32>(__builtin_amdgcn_update_dpp(0, bit_cast<i32>(own), kSwap, 0xf, 0xf, true));
  };
  static_for<0, 8>([&](auto i) HK_INLINED {
    const Pair own = pair(values, i), others = {other(own[0]), other(own[1])};
    set_pair(values, i, __builtin_elementwise_fma(own, Pair(sign), others));
  });
}

// The operations of hk_backend/reference/butterflies.py, in its order. No product meets a sum that
// it could be fused with.
HK_DEVICE void rotate(Block& block, i32 rotation) {
  const auto both = [&](auto&& body) HK_INLINED { body(block.even), body(block.odd); };
  static_for<0, 8>([&](auto i) HK_INLINED {
    const Pair a = pair(block.even, i), b = pair(block.odd, i);
    set_pair(block.even, i, a + b);
    set_pair(block.odd, i, a - b);
  });
  both([](auto& values) HK_INLINED {
    butterfly<1>(values);
    butterfly<2>(values);
    butterfly<4>(values);
    butterfly<8>(values);
  });
  if (rotation >= 64) both([](auto& values) HK_INLINED { butterfly_lanes<1>(values); });
  if (rotation == 128) both([](auto& values) HK_INLINED { butterfly_lanes<2>(values); });
  const f32 factor = rotation == 128  ? 0.08838834764831845f
                     : rotation == 64 ? 0.125f
                                      : 0.17677669529663687f;  // 1 / sqrt(rotation)
  both([&](auto& values) HK_INLINED { values *= Vec<f32, 16>(factor); });
}

}  // namespace hk::quantize
