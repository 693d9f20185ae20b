// How the multiply holds prepared rows, by the number of rows, the formats and the processor.
#pragma once

#include <type_traits>

#include "common/amx_gemm.hpp"
#include "formats/weight_format.hpp"

namespace hk::cpu::HK_ISA {

// As float32; as bfloat16 for many rows; or as whole numbers: in bytes, for few rows by the pair and
// for many by the quad, or for many rows in 16-bit words.
enum class RowForm { floats, bf16, pairs, quads, words };

struct QuadSlab;
struct WordSlab;
// Whether many rows beside a weight of such a format are held in such slabs.
template <class W, class Slab>
constexpr bool has_slabs() {
  if constexpr (W::has_integers)
    return std::is_same_v<Slab, std::conditional_t<W::small::fits_a_byte(), QuadSlab, WordSlab>>;
  return false;
}

HK_INLINE bool multiplies_integers(RowForm form, [[maybe_unused]] const LinearArgs& args) {
  // AMX multiplies bfloat16 at four times the rate of integers in vectors. Its integer tiles would
  // not gain on that: between two of them 32 x 32 sums have to be scaled in vectors.
  if (kHasTiles) return false;
#if defined(__AVX512F__)
  // On Intel the two ports that multiply also add: without dot products floats take fewer clocks.
  if (form == RowForm::words) return args.dot_products;
#endif
  return form == RowForm::words || form == RowForm::quads;
}

// Whether bfloat16 holds the values of both factors. Scales in float32 are not among them.
HK_INLINE bool is_exact_in_bf16(const LinearArgs& args) {
  if (args.format == Format::f32 || args.format == Format::f16) return false;
  if (args.activations != Activations::none) return true;
  return args.x_dtype == DType::bf16 && args.rotation == 0;
}

// Elements along K that a multiply in bfloat16 takes at a time: even shares, of whole scale blocks
// if there are several. AMX reads 64 bytes of A and B for each clock of multiplying, so its panel's
// block and two rows of tiles stay in 48 KiB of first cache; vectors read a quarter, also from L2.
constexpr int64_t kLongestPairBlock = kHasTiles ? 256 : kMostPairBlock;
constexpr int64_t pair_block(int64_t k) {
  const int64_t blocks = (k + kLongestPairBlock - 1) / kLongestPairBlock;
  const int64_t unit = blocks > 1 ? kScaleBlock : kSlabK;
  return ((k + blocks - 1) / blocks + unit - 1) / unit * unit;
}

// Up to how many rows the weight is expanded in registers as it streams by. A bfloat16 weight needs
// no expansion beside rows of bfloat16, so its tiles take over early.
inline int64_t skinny_rows(const LinearArgs& args) {
  if (!kHasPairs || !is_exact_in_bf16(args)) return kSkinnyRows;
  return args.format == Format::bf16 ? 2 : kGroupRows;
}

HK_INLINE RowForm row_form(const LinearArgs& args, int64_t rows) {
  const bool mx = args.activations == Activations::mx;
  if (rows <= skinny_rows(args))
    return mx && args.format == Format::mx4 && NibbleWeight::has_integers ? RowForm::pairs
                                                                          : RowForm::floats;
  RowForm form = RowForm::floats;
  if (mx)
    with_weight_format(args.format, [&](auto weight) {
      using W = decltype(weight);
      if constexpr (has_slabs<W, QuadSlab>()) form = RowForm::quads;
      if constexpr (has_slabs<W, WordSlab>()) form = RowForm::words;
    });
  if (multiplies_integers(form, args)) return form;
  return kHasPairs && is_exact_in_bf16(args) ? RowForm::bf16 : RowForm::floats;
}

// Rows of bfloat16 in one block along K are copied for nothing, unless each begins in the same set
// of the first cache, which has twelve places. AMX would read rows behind the last one.
inline bool takes_in_place(const LinearArgs& args, int64_t rows) {
  constexpr int64_t kSetsPeriod = 4096;
  if (kHasTiles || args.activations != Activations::none) return false;
  if (rows <= skinny_rows(args) || row_form(args, rows) != RowForm::bf16) return false;
  const int64_t row_bytes = int64_t(sizeof(uint16_t)) * args.x_row;
  return args.k % kSlabK == 0 && args.k <= pair_block(args.k) && row_bytes % kSetsPeriod != 0;
}

}  // namespace hk::cpu::HK_ISA
