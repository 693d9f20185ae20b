// The multiply of a few rows with a packed weight. Reading and expanding the weight limit its
// speed, so the weight is streamed once and expanded in registers.
//
//   for each band of a few panels:
//     for each piece of K, each panel of the band, each group of rows:
//       for each slab:  expand;  sums[row] += x[row][k] * w
//         at the end of a scale (mx: each slab; else: each block of K):  totals += sums * scale
//     scale, add the bias, round once, store
//
// A piece is a few kilobytes. While it is multiplied, the next one is prefetched, and the rows'
// elements stay in the first-level cache for all panels of the band. The first group of rows leaves
// a block of K of the weight expanded in the first-level cache, for the other groups.

#include <type_traits>

#include "linear/linear_store.hpp"
#include "linear/skinny_floats.hpp"
#include "linear/skinny_integers.hpp"

namespace hk::cpu::HK_ISA {
namespace {

constexpr int64_t kBand = 8, kPieceBytes = 8192;
static_assert(kBlockK == kScaleBlock);

HK_INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

// Groups of rows that are multiplied together, cut evenly, and the function for each group.
struct Groups {
  int64_t count, begin[kSkinnyRows + 1];
  AddPiece add[kSkinnyRows];

  Groups(int64_t rows, int64_t most) : count((rows + most - 1) / most) {
    for (int64_t g = 0; g <= count; ++g) begin[g] = rows * g / count;
  }
  HK_INLINE int64_t rows(int64_t g) const { return begin[g + 1] - begin[g]; }
};

template <class W, bool block_scaled>
HK_INLINE Groups float_groups(int64_t rows) {
  Groups groups(rows, kGroupRows);
  groups.add[0] = floats_for<W, block_scaled, Source::codes>(groups.rows(0));
  if constexpr (kSkinnyRows > kGroupRows) {
    if (groups.count > 1)
      groups.add[0] = floats_for<W, block_scaled, Source::codes_kept>(groups.rows(0));
    for (int64_t g = 1; g < groups.count; ++g)
      groups.add[g] = floats_for<W, block_scaled, Source::strip>(groups.rows(g));
  }
  return groups;
}

template <class W>
HK_INLINE Groups groups_for(const LinearArgs& args, int64_t rows) {
  if constexpr (std::is_same_v<W, NibbleWeight> && NibbleWeight::has_integers)
    if (row_form(args, rows) == RowForm::pairs) {
      Groups groups(rows, kIntegerRows);
      for (int64_t g = 0; g < groups.count; ++g) groups.add[g] = integers_for<W>(groups.rows(g));
      return groups;
    }
  if constexpr (is_quantised<W> && !W::mx)
    if (args.block_scales) return float_groups<W, true>(rows);
  return float_groups<W, false>(rows);
}

// A band of panels, from `begin` to `end`, at most kBand.
template <class W>
struct Band {
  static constexpr int64_t block_bytes = kSlabsPerBlock * W::slab_bytes;
  static constexpr int64_t piece =  // slabs
      kSlabsPerBlock * (block_bytes < kPieceBytes ? kPieceBytes / block_bytes : 1);
  const LinearArgs& args;
  const PreparedRows& prepared;
  const Groups& groups;
  float *totals, *strip;  // [end - begin][rows][NR], the arrays of Piece
  int64_t begin, end;
  int64_t slabs = (args.k + kSlabK - 1) / kSlabK;  // slabs of a panel

  HK_INLINE const uint8_t* slab(int64_t panel, int64_t s) const {
    return args.weight + (panel * slabs + s) * W::slab_bytes;
  }
  HK_INLINE float* totals_of(int64_t panel) const {
    return totals + (panel - begin) * prepared.rows * NR;
  }
  HK_INLINE const float* block_scales(int64_t panel, int64_t block) const {
    const int64_t blocks = (args.k + kScaleBlock - 1) / kScaleBlock;
    return args.block_scales ? args.block_scales + panel * NR / kScaleBlock * blocks + block
                             : nullptr;
  }

  // Multiplies slabs `first` to `last` of a panel with all rows; `next`: the slabs read after them.
  HK_INLINE void add(int64_t panel, int64_t first, int64_t last, const uint8_t* next) const {
    const int64_t step = groups.count > 1 ? kSlabsPerBlock : last - first;
    for (int64_t s = first; s < last; s += step, next += step * W::slab_bytes)
      for (int64_t g = 0; g < groups.count; ++g) {
        const int64_t block = s / kSlabsPerBlock, row = groups.begin[g];
        groups.add[g]({.slab = slab(panel, s),
                       .slabs = min(step, last - s),
                       .next = next,
                       .x = prepared.data + (block * prepared.rows + row) * kBlockK,
                       .x_block = prepared.rows * kBlockK,
                       .block_scales = block_scales(panel, block),
                       .strip = strip,
                       .totals = totals_of(panel) + row * NR});
      }
  }

  void multiply() const {
    std::memset(totals, 0, sizeof(float) * size_t((end - begin) * prepared.rows * NR));
    for (int64_t first = 0; first < slabs; first += piece) {
      const int64_t last = min(slabs, first + piece);
      for (int64_t p = begin; p < end; ++p) {
        const bool down = p + 1 == end;  // next comes the following piece of K, or the next band
        add(p, first, last,
            !down          ? slab(p + 1, first)
            : last < slabs ? slab(begin, last)
                           : slab(end, 0));
      }
    }
    for (int64_t p = begin; p < end; ++p)
      store_rows(args, Columns(args, p * NR), prepared.first, prepared.rows, prepared.factors,
                 totals_of(p));
  }
};

}  // namespace

void multiply_skinny(const LinearArgs& args, const PreparedRows& prepared, int64_t panel_begin,
                     int64_t panel_end) {
  alignas(64) float totals[kBand * kSkinnyRows * NR], strip[kBlockK * NR];
  with_weight_format(args.format, [&](auto weight) {
    using W = decltype(weight);
    const Groups groups = groups_for<W>(args, prepared.rows);
    for (int64_t p = panel_begin; p < panel_end; p += kBand)
      Band<W>{args, prepared, groups, totals, strip, p, min(panel_end, p + kBand)}.multiply();
  });
}

}  // namespace hk::cpu::HK_ISA
