// Activations as whole numbers, for a weight in the same mx format or a narrower one. Elements of
// both are small whole numbers times a power of two, so that products of a slab add up exactly in
// integers. `W` and `X` are the SmallFloat of the weight and of the activations.
//
// The x86 multiply of bytes takes one unsigned factor. Weights therefore have `most` added (see
// small_float.hpp), and each sum starts at a value that compensates for it. The multiply of 16-bit
// numbers takes signed factors.
#pragma once

#include "formats/quantize.hpp"
#include "linear/row_form.hpp"

namespace hk::cpu::HK_ISA {

// Rounds 32 float32 elements to whole numbers; returns the scale of a product's unit. A block that
// is not finite gets zeros and a scale that is not finite either.
template <class W, class X, class Int>
HK_INLINE float round_to_whole(const float* x, Int (&whole)[kSlabK]) {
  typedef Int narrow __attribute__((vector_size(VL * sizeof(Int))));
  const uint32_t code = mx_scale_code<X>(max_abs(x, kSlabK), true);
  const bool broken = code == kBrokenBlock;
  const vec inverse = splat(broken ? 0.0f : mx_inverse_scale(code));
  for (int64_t i = 0; i < kSlabK; i += VL) {
    const vec value = round_value<X>(load(x + i) * inverse, X::max());
    const ivec units = __builtin_convertvector(value * splat(X::unit), ivec);
    const auto run = __builtin_convertvector(broken ? ivec{} : units, narrow);
    std::memcpy(whole + i, &run, sizeof(run));
  }
  constexpr float product = 1.0f / (W::unit * X::unit);
  return broken ? __builtin_nanf("") : product * mx_scale(code);
}

// Sums each half of 32 elements: one sum of the first two of every four, one of the last two.
HK_INLINE void sum_parts(const int8_t* whole, int16_t (&sums)[2][2]) {
  typedef int16_t lanes __attribute__((vector_size(kSlabK)));
  lanes pairs;
  std::memcpy(&pairs, whole, sizeof(pairs));
  pairs = (pairs << 8 >> 8) + (pairs >> 8);
  for (int half = 0; half < 2; ++half)
    for (int lane = 0; lane < 2; ++lane) {
      const int i = 8 * half + lane;
      sums[half][lane] = int16_t(pairs[i] + pairs[i + 2] + pairs[i + 4] + pairs[i + 6]);
    }
}
HK_INLINE int32_t sum_of(const int8_t* whole) {
  int16_t sums[2][2];
  sum_parts(whole, sums);
  return sums[0][0] + sums[0][1] + sums[1][0] + sums[1][1];
}

// ---- few rows ---------------------------------------------------------------------------------

// A slab of 32 elements of a row. A 16-bit lane of a sum is a column, whose 32 products have less
// than 15 bits. Sums start at 2^15, the middle of the lane's range.
struct IntegerSlab {
  int8_t pairs[kSlabK / 2][4];  // each pair of elements twice
  uint16_t start[2];            // value that sums start at, twice
  float scale;
};

// A block of a prepared row, stored in place of its kBlockK floats.
struct IntegerBlock {
  IntegerSlab slabs[kBlockK / kSlabK];
};
static_assert(sizeof(IntegerBlock) <= kBlockK * sizeof(float));

template <class W, class X>
HK_INLINE void round_to_pairs(const float* x, IntegerSlab& slab) {
  static_assert(kSlabK * W::most() * X::most() < 1 << 15 && 4 * W::most() * X::most() < 1 << 15);
  int8_t whole[kSlabK];
  slab.scale = round_to_whole<W, X>(x, whole);
  for (int64_t i = 0; i < kSlabK / 2; ++i)
    for (int copy = 0; copy < 2; ++copy) std::memcpy(slab.pairs[i] + 2 * copy, whole + 2 * i, 2);
  slab.start[0] = slab.start[1] = uint16_t((1 << 15) - W::most() * sum_of(whole));
}

// ---- many rows --------------------------------------------------------------------------------

// A slab of 32 elements of a row. A 32-bit lane is a column, its bytes four neighbours along K.
struct QuadSlab {
  static constexpr int64_t lanes = kSlabK / 4;
  int8_t whole[kSlabK];
  // Values that sums start at. `parts`, for sums in 16 bits: one for each half of the elements, and
  // for the first two and the last two of every four. `all`, for sums in 32 bits: over all
  // elements.
  int16_t parts[2][2];
  int32_t all;
  float scale;
};
// Number of parts of a slab so that sums over a part fit 16 bits; a lane takes half of its
// products.
template <class W, class X>
constexpr int kQuadParts = kSlabK / 2 * W::most() * X::most() < 1 << 15 ? 1 : 2;

template <class W, class X>
HK_INLINE void round_to_quads(const float* x, QuadSlab& slab) {
  constexpr int parts = kQuadParts<W, X>, most = W::most(), product = W::most() * X::most();
  static_assert(kSlabK / 2 / parts * product < 1 << 15 && 4 * product < 1 << 15);
  slab.scale = round_to_whole<W, X>(x, slab.whole);
  int16_t sums[2][2], all = 0;
  sum_parts(slab.whole, sums);
  for (int part = 0; part < 2; ++part)
    for (int lane = 0; lane < 2; ++lane) {
      all = int16_t(all + sums[part][lane]);
      if (parts == 1 && part == 1) sums[0][lane] = int16_t(sums[0][lane] + sums[1][lane]);
    }
  for (int part = 0; part < 2; ++part)
    for (int lane = 0; lane < 2; ++lane) slab.parts[part][lane] = int16_t(-most * sums[part][lane]);
  slab.all = -most * all;
}

// A slab of 32 elements of a row. A 32-bit lane is a column, its words two neighbours along K.
struct WordSlab {
  static constexpr int64_t lanes = kSlabK / 2;
  static constexpr int32_t all = 0;  // nothing has been added to the weights
  int16_t whole[kSlabK];
  float scale;
};

template <class W, class X>
HK_INLINE void round_to_words(const float* x, WordSlab& slab) {
  static_assert(kSlabK * W::most() * X::most() < 1 << 24);  // float32 holds every sum
  slab.scale = round_to_whole<W, X>(x, slab.whole);
}

// The slab of a row, stored in place of the rows' floats; all rows of one slab are neighbours.
template <class Slab>
HK_INLINE Slab* slab_of(const PreparedRows& rows, int64_t row, int64_t slab) {
  static_assert(sizeof(Slab) <= kSlabK * sizeof(float));
  return reinterpret_cast<Slab*>(rows.data) + slab * rows.rows + row;
}

}  // namespace hk::cpu::HK_ISA
