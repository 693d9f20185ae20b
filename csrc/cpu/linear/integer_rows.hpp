// Activations in mxfp4 beside a weight in mxfp4: twice a value is a whole number of at most 12, so
// that the products of a slab add up exactly in 16 bits, two to an instruction.
#pragma once

#include "formats/quantize.hpp"
#include "formats/weight_format.hpp"

namespace hk::cpu::HK_ISA {

// 32 elements of a row. A 16-bit lane is a column. The multiply takes one factor without a sign:
// weights come with NibbleWeight::offset added, and a sum starts with what that adds up to taken
// away, at 2^15, the middle of the lane.
struct IntegerSlab {
  int8_t pairs[kSlabK / 2][4];  // twice the elements in units of their scale; each pair twice
  uint16_t start[2];            // the same, twice
  float scale;                  // of a quarter: both factors were doubled
};

// A block of a prepared row, in the place of its kBlockK floats.
struct IntegerBlock {
  IntegerSlab slabs[kBlockK / kSlabK];
};
static_assert(sizeof(IntegerBlock) <= kBlockK * sizeof(float));

HK_INLINE bool multiplies_integers(const LinearArgs& args, int64_t rows) {
  return NibbleWeight::has_integers && args.format == Format::mx4 &&
         args.activations == Activations::mx && rows <= kSkinnyRows;
}

// 32 float32 elements. A block that is not finite has zeros and a scale that says so.
HK_INLINE void round_to_integers(const float* x, IntegerSlab& slab) {
  typedef int8_t narrow __attribute__((vector_size(VL)));
  const uint32_t code = mx_scale_code<E2M1>(max_abs(x, kSlabK), true);
  const bool broken = code == kBrokenBlock;
  const vec inverse = splat(broken ? 0.0f : mx_inverse_scale(code));
  int8_t twice[kSlabK];
  ivec sums{};
  for (int64_t i = 0; i < kSlabK; i += VL) {
    const vec value = round_value<E2M1>(load(x + i) * inverse, E2M1::max());
    const ivec whole = broken ? ivec{} : __builtin_convertvector(value + value, ivec);
    const auto bytes = __builtin_convertvector(whole, narrow);
    std::memcpy(twice + i, &bytes, sizeof(bytes));
    sums += whole;
  }
  int32_t sum = 0;
  for (int i = 0; i < VL; ++i) sum += sums[i];
  for (int64_t i = 0; i < kSlabK / 2; ++i)
    for (int copy = 0; copy < 2; ++copy) std::memcpy(slab.pairs[i] + 2 * copy, twice + 2 * i, 2);
  slab.start[0] = slab.start[1] = uint16_t((1 << 15) - NibbleWeight::offset * sum);
  slab.scale = broken ? __builtin_nanf("") : 0.25f * mx_scale(code);
}

}  // namespace hk::cpu::HK_ISA
