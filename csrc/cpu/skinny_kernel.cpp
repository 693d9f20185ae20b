// The multiply of a few rows with a packed weight: limited by how fast the weight can be read and
// expanded, so each of its registers is expanded once and multiplied by all rows there and then.
//
//   for each panel of NR columns:
//     for each slab, each group of 8 elements along K:  expand;  sums[row] += x[row][k] * w
//       where a scale ends (mx: each slab; fp8 blocks: each fourth):  totals += sums * scale
//     scale, add the bias, round once, store
//
// A sum waits four clocks for itself while a core starts two products per clock: eight registers
// of sums keep it busy, so one row has four chains that take turns along K, and two rows have two.

#include "linear_store.hpp"
#include "weight_format.hpp"

namespace hk::cpu::HK_ISA {
namespace {

template <int rows>
struct Sums {
  static constexpr int chains = rows == 1 ? 4 : rows == 2 ? 2 : 1;
  vec at[chains][rows][NV];

  HK_INLINE void zero() {
#pragma GCC unroll 4
    for (int c = 0; c < chains; ++c)
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r)
        for (int v = 0; v < NV; ++v) at[c][r][v] = vec{};
  }
  // x: the rows' elements at k, `row` apart.
  HK_INLINE void add(int64_t k, const float* x, int64_t row, const vec (&w)[NV]) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v) at[k % chains][r][v] += splat(x[r * row]) * w[v];
  }
  HK_INLINE vec total(int r, int v) const {
    if constexpr (chains == 1) return at[0][r][v];
    if constexpr (chains == 2) return at[0][r][v] + at[1][r][v];
    return (at[0][r][v] + at[1][r][v]) + (at[2][r][v] + at[3][r][v]);
  }
};

// Where the sums of a panel are scaled before they are added up.
enum class Scaled { at_the_end, per_slab, per_block };

template <class W, int rows, Scaled scaled>
struct Panel {
  const float* x;              // PreparedRows
  const uint8_t* slab;
  const float* block_scales;   // of the panel's columns
  int64_t k;                   // a multiple of kSlabK

  // sums [rows][NR], what W::factor is still to be multiplied with included
  HK_INLINE void multiply(float* out) {
    Sums<rows> sums;
    vec totals[rows][NV];
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v) totals[r][v] = vec{};
    sums.zero();
    for (int64_t begin = 0; begin < k; begin += kSlabK, slab += W::slab_bytes) {
      const float* at = x + begin / kBlockK * kBlockK * rows + begin % kBlockK;
      add_slab(at, sums);
      const int64_t end = begin + kSlabK;
      if (scaled == Scaled::per_slab || end == k ||
          (scaled == Scaled::per_block && end % kScaleBlock == 0))
        move(sums, scale_of(begin), totals);
    }
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v) store(out + r * NR + v * VL, totals[r][v]);
  }

 private:
  struct Scale {
    vec at[NV];
  };
  HK_INLINE Scale scale_of(int64_t begin) const {
    Scale scale;
    for (int v = 0; v < NV; ++v) scale.at[v] = splat(1.0f);
    if constexpr (scaled == Scaled::per_slab) column_scales<W>(slab, scale.at);
    if constexpr (scaled == Scaled::per_block)
      for (int v = 0; v < NV; ++v) scale.at[v] = splat(block_scales[begin / kScaleBlock]);
    return scale;
  }
  HK_INLINE void add_slab(const float* at, Sums<rows>& sums) const {
    const uint8_t* codes = slab + W::scale_bytes;
    for (int64_t group = 0; group < kSlabK; group += kGroupK, codes += W::group_bytes) {
      for (int64_t line = 0; line < W::group_bytes; line += 64)
        __builtin_prefetch(codes + kPrefetchAhead + line);
      W::expand_group(codes, [&](int64_t i, const vec(&w)[NV]) HK_INLINED {
        sums.add(i, at + group + i, kBlockK, w);
      });
    }
  }
  static HK_INLINE void move(Sums<rows>& sums, const Scale& scale, vec (&totals)[rows][NV]) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v)
        totals[r][v] += sums.total(r, v) * splat(W::factor) * scale.at[v];
    sums.zero();
  }
};

template <class W, int rows, Scaled scaled>
void multiply_panels(const LinearArgs& args, const PreparedRows& prepared, int64_t begin,
                     int64_t end) {
  const int64_t padded_k = (args.k + kSlabK - 1) / kSlabK * kSlabK;
  const int64_t scales_per_row = (args.k + kScaleBlock - 1) / kScaleBlock;
  for (int64_t panel = begin; panel < end; ++panel) {
    alignas(64) float sums[rows * NR];
    Panel<W, rows, scaled> work{
        prepared.data, args.weight + panel * (padded_k / kSlabK) * W::slab_bytes,
        args.block_scales + panel * NR / kScaleBlock * scales_per_row, padded_k};
    work.multiply(sums);
    store_panel(args, prepared.first, rows, prepared.factors, panel * NR, sums);
  }
}

template <class W, Scaled scaled, int rows = MR>
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
