// Chooses the form of prepared rows, by the number of rows, the formats and the processor.
#pragma once

#include <type_traits>

#include "common/amx_gemm.hpp"
#include "formats/quantize.hpp"
#include "formats/weight_format.hpp"

namespace hk::cpu::HK_ISA {

// Forms of prepared rows. `floats` is float32. `bf16` is bfloat16, for many rows. `pairs` and
// `quads` are whole numbers in bytes, for few rows two in a lane and for many rows four. `words` is
// whole numbers in 16-bit words, for many rows.
enum class RowForm { floats, bf16, pairs, quads, words };

// Calls f(weight, x) with the types of a weight's format and of the elements of mx activations
// beside it, which may have more bits. Nothing is called for other activations.
template <class F>
HK_INLINE void with_mx_formats(const LinearArgs& args, F f) {
  if (args.activations != Activations::mx) return;
  with_weight_format(args.format, [&](auto weight) {
    using W = decltype(weight);
    if constexpr (W::mx)
      with_small_float(args.x_format, [&](auto x) {
        using X = decltype(x);
        if constexpr (std::is_same_v<X, typename W::small> || W::small::bits < X::bits)
          f(weight, x);
      });
  });
}

struct QuadSlab;
struct WordSlab;
// Whether many rows of elements X, for a weight of format W, are held in slabs of type `Slab`.
template <class W, class X, class Slab>
constexpr bool has_slabs() {
  if constexpr (W::has_integers && X::bits < 8) {
    constexpr bool bytes = W::small::fits_a_byte() && X::fits_a_byte();
    return std::is_same_v<Slab, std::conditional_t<bytes, QuadSlab, WordSlab>>;
  }
  return false;
}

// Whether few rows of elements X, for a weight of format W, are held in slabs of pairs: 16 bits
// hold the sums of a slab.
template <class W, class X>
constexpr bool has_pairs() {
  if constexpr (std::is_same_v<W, NibbleWeight> && W::has_integers && X::bits < 8)
    return kSlabK * W::small::most() * X::most() < 1 << 15;
  return false;
}

HK_INLINE bool multiplies_integers(RowForm form, [[maybe_unused]] const LinearArgs& args) {
  // AMX multiplies bfloat16 at four times the rate of integers in vectors. AMX's integer tiles
  // would not be faster: between two of them, 32 x 32 sums have to be scaled in vectors.
  if (kHasTiles) return false;
#if defined(__AVX512F__)
  // Intel's two ports that multiply also add, so floats are faster without dot products.
  if (form == RowForm::words) return args.dot_products;
#endif
  return form == RowForm::words || form == RowForm::quads;
}

// Whether bfloat16 holds the values of both factors exactly, without their float32 scales.
HK_INLINE bool is_exact_in_bf16(const LinearArgs& args) {
  if (args.format == Format::f32 || args.format == Format::f16) return false;
  if (args.activations != Activations::none) return true;
  return args.x_dtype == DType::bf16 && args.rotation == 0;
}

// Elements along K that a multiply in bfloat16 takes at a time: even shares of K, in whole scale
// blocks if there are several. AMX reads 64 bytes of A and B for each clock of multiplying, so its
// panel's block and two rows of tiles must stay in a first-level cache of 48 KiB. Vectors read a
// quarter of that, which L2 can deliver, too.
constexpr int64_t kLongestPairBlock = kHasTiles ? 256 : kMostPairBlock;
constexpr int64_t pair_block(int64_t k) {
  const int64_t blocks = (k + kLongestPairBlock - 1) / kLongestPairBlock;
  const int64_t unit = blocks > 1 ? kScaleBlock : kSlabK;
  return ((k + blocks - 1) / blocks + unit - 1) / unit * unit;
}

// Most rows for which the weight is expanded in registers while it is streamed. A bfloat16 weight
// needs no expansion for rows of bfloat16, so tiles are faster from a few rows on.
inline int64_t skinny_rows(const LinearArgs& args) {
  if (!kHasPairs || !is_exact_in_bf16(args)) return kSkinnyRows;
  return args.format == Format::bf16 ? 2 : kGroupRows;
}

HK_INLINE RowForm row_form(const LinearArgs& args, int64_t rows) {
  const bool few = rows <= skinny_rows(args);
  RowForm form = RowForm::floats;
  with_mx_formats(args, [&](auto weight, auto x) {
    using W = decltype(weight);
    using X = decltype(x);
    if constexpr (has_slabs<W, X, QuadSlab>())
      if (!few) form = RowForm::quads;
    if constexpr (has_slabs<W, X, WordSlab>())
      if (!few) form = RowForm::words;
    if constexpr (has_pairs<W, X>())
      if (few) form = RowForm::pairs;
  });
  if (few) return form;
  if (multiplies_integers(form, args)) return form;
  return kHasPairs && is_exact_in_bf16(args) ? RowForm::bf16 : RowForm::floats;
}

// Whether the multiply reads rows from X itself. Copying rows of bfloat16 with a single block along
// K gains nothing, unless all rows begin in the same set of the first-level cache, which has twelve
// ways. AMX always copies, since it would read rows behind the last one.
inline bool takes_in_place(const LinearArgs& args, int64_t rows) {
  constexpr int64_t kSetsPeriod = 4096;
  if (kHasTiles || args.activations != Activations::none) return false;
  if (rows <= skinny_rows(args) || row_form(args, rows) != RowForm::bf16) return false;
  const int64_t row_bytes = int64_t(sizeof(uint16_t)) * args.x_row;
  return args.k % kSlabK == 0 && args.k <= pair_block(args.k) && row_bytes % kSetsPeriod != 0;
}

}  // namespace hk::cpu::HK_ISA
