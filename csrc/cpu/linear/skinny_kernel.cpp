// The multiply of a few rows with a packed weight: limited by how fast the weight can be read and
// expanded, so each of its registers is expanded once and multiplied by all rows there and then.
//
//   for each panel of NR columns:
//     for each slab, each 8 elements along K:  expand;  sums[row] += x[row][k] * w
//       where a scale ends (mx: each slab; fp8 blocks: each fourth):  totals += sums * scale
//     scale, add the bias, round once, store
//
// A sum waits four clocks for itself while a core starts two products per clock, so one or two
// rows have two chains of sums that take turns along K. More would take the registers that hold
// the constants of the expansion.

#include "linear/linear_store.hpp"
#include "formats/weight_format.hpp"

namespace hk::cpu::HK_ISA {
namespace {

template <int rows>
struct Sums {
  static constexpr int chains = rows <= 2 ? 2 : 1;
  vec at[chains][rows][NV];

  HK_INLINE void zero() {
    for (int c = 0; c < chains; ++c)
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r)
        for (int v = 0; v < NV; ++v) at[c][r][v] = vec{};
  }
  // x: the rows' elements at k.
  HK_INLINE void add(int64_t k, const float* x, const vec (&w)[NV]) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v) at[k % chains][r][v] += splat(x[r * kBlockK]) * w[v];
  }
  HK_INLINE vec total(int r, int v) const {
    if constexpr (chains == 1) return at[0][r][v];
    return at[0][r][v] + at[1][r][v];
  }
};

// Where the sums of a panel are scaled before they are added up.
enum class Scaled { at_the_end, per_slab, per_block };

// One panel's slabs and scales.
template <class W, Scaled scaled>
struct Panel {
  const uint8_t* weight;
  const float* block_scales;
  int64_t k;  // a multiple of kSlabK

  Panel(const LinearArgs& args, int64_t panel)
      : block_scales(nullptr), k((args.k + kSlabK - 1) / kSlabK * kSlabK) {
    weight = args.weight + panel * (k / kSlabK) * W::slab_bytes;
    const int64_t blocks = (args.k + kScaleBlock - 1) / kScaleBlock;
    if (scaled == Scaled::per_block)
      block_scales = args.block_scales + panel * NR / kScaleBlock * blocks;
  }
  HK_INLINE const uint8_t* slab(int64_t begin) const {
    return weight + begin / kSlabK * W::slab_bytes;
  }
  // Whether the sums end here, because their scale does or K.
  HK_INLINE bool scale_ends(int64_t end) const {
    return scaled == Scaled::per_slab || end == k ||
           (scaled == Scaled::per_block && end % kScaleBlock == 0);
  }
  // Of the slab that begins there.
  HK_INLINE void scale_at(int64_t begin, vec (&scale)[NV]) const {
    for (int v = 0; v < NV; ++v) scale[v] = splat(1.0f);
    if constexpr (scaled == Scaled::per_slab) column_scales<W>(slab(begin), scale);
    if constexpr (scaled == Scaled::per_block)
      for (int v = 0; v < NV; ++v) scale[v] = splat(block_scales[begin / kScaleBlock]);
  }
};

// One slab. x: the rows' elements at its begin.
template <class W, int rows>
HK_INLINE void add_slab(const uint8_t* slab, const float* x, Sums<rows>& sums) {
  const uint8_t* codes = slab + W::scale_bytes;
  for (int64_t group = 0; group < kSlabK; group += kGroupK, codes += W::group_bytes) {
    for (int64_t line = 0; line < W::group_bytes; line += 64)
      __builtin_prefetch(codes + kPrefetchAhead + line);
    W::expand_group(codes, [&](int64_t i, const vec(&w)[NV]) HK_INLINED {
      sums.add(i, x + group + i, w);
    });
  }
}

// out [rows][NR]: all prepared rows times the panel.
template <class W, int rows, Scaled scaled>
HK_INLINE void multiply_panel(const Panel<W, scaled>& panel, const PreparedRows& prepared,
                              float* out) {
  Sums<rows> sums;
  vec totals[rows][NV];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < NV; ++v) totals[r][v] = vec{};
  sums.zero();
  for (int64_t k = 0; k < panel.k; k += kSlabK) {
    add_slab<W>(panel.slab(k), prepared.data + k / kBlockK * kBlockK * rows + k % kBlockK, sums);
    if (!panel.scale_ends(k + kSlabK)) continue;
    vec scale[NV];
    panel.scale_at(k, scale);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v)
        totals[r][v] += sums.total(r, v) * splat(W::factor) * scale[v];
    sums.zero();
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < NV; ++v) store(out + r * NR + v * VL, totals[r][v]);
}

// A function of its own per number of rows: together, they would share out the registers.
template <class W, int rows, Scaled scaled>
__attribute__((noinline)) void multiply_panels(const LinearArgs& args,
                                               const PreparedRows& prepared, int64_t begin,
                                               int64_t end) {
  alignas(64) float sums[rows * NR];
  for (int64_t p = begin; p < end; ++p) {
    multiply_panel<W, rows>(Panel<W, scaled>(args, p), prepared, sums);
    store_panel(args, prepared.first, rows, prepared.factors, p * NR, sums);
  }
}

template <class W, Scaled scaled, int rows = kSkinnyRows>
HK_INLINE void with_rows(const LinearArgs& args, const PreparedRows& prepared, int64_t begin,
                         int64_t end) {
  if constexpr (rows > 1)
    if (prepared.rows < rows) return with_rows<W, scaled, rows - 1>(args, prepared, begin, end);
  multiply_panels<W, rows, scaled>(args, prepared, begin, end);
}

}  // namespace

void multiply_skinny(const LinearArgs& args, const PreparedRows& prepared, int64_t panel_begin,
                     int64_t panel_end) {
  with_weight_format(args.format, [&](auto weight) {
    using W = decltype(weight);
    if constexpr (W::mx) {
      with_rows<W, Scaled::per_slab>(args, prepared, panel_begin, panel_end);
    } else {
      if constexpr (is_quantised<W>)
        if (args.block_scales)
          return with_rows<W, Scaled::per_block>(args, prepared, panel_begin, panel_end);
      with_rows<W, Scaled::at_the_end>(args, prepared, panel_begin, panel_end);
    }
  });
}

}  // namespace hk::cpu::HK_ISA
