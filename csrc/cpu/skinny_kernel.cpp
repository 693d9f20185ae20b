// The multiply of a few rows with a packed weight: limited by how fast the weight can be read and
// expanded, so each of its registers is expanded once.
//
//   for each panel of NR columns:
//     for each slab, each group of 8 elements along K:
//       few rows:       expand; sums[row] += x[row][k] * w, while w is in registers
//       not so few:     expand into the first cache; for each tile of rows, the same from there
//       where a scale ends (mx: each slab; fp8 blocks: each fourth):  totals += sums * scale
//     scale, add the bias, round once, store
//
// A sum waits four clocks for itself while a core starts two products per clock, so one or two
// rows have two chains of sums that take turns along K. More would take the registers that hold
// the constants of the expansion.
// What is read next is prefetched all the time: a phase that only multiplies would leave the
// memory idle.

#include "linear_store.hpp"
#include "weight_format.hpp"

namespace hk::cpu::HK_ISA {
namespace {

constexpr int kMostDirect = MR < 6 ? MR : 6;  // rows that are multiplied straight from registers

// Of a group that is about to be expanded.
template <class W>
HK_INLINE void prefetch_group(const uint8_t* codes) {
  for (int64_t line = 0; line < W::group_bytes; line += 64)
    __builtin_prefetch(codes + kPrefetchAhead + line);
}

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
  HK_INLINE bool is_end(int64_t end) const {
    return scaled == Scaled::per_slab || end == k ||
           (scaled == Scaled::per_block && end % kScaleBlock == 0);
  }
  // What the sums since the last end have to be multiplied by; `begin` is that of the last slab.
  HK_INLINE void scale_at(int64_t begin, vec (&scale)[NV]) const {
    for (int v = 0; v < NV; ++v) scale[v] = splat(1.0f);
    if constexpr (scaled == Scaled::per_slab) column_scales<W>(slab(begin), scale);
    if constexpr (scaled == Scaled::per_block)
      for (int v = 0; v < NV; ++v) scale[v] = splat(block_scales[begin / kScaleBlock]);
  }
};

HK_INLINE const float* row_block(const PreparedRows& prepared, int64_t k) {
  return prepared.data + k / kBlockK * kBlockK * prepared.rows + k % kBlockK;
}

// ---- few rows: from registers ------------------------------------------------------------------

template <class W, int rows, Scaled scaled>
HK_INLINE void multiply_direct(const Panel<W, scaled>& panel, const PreparedRows& prepared,
                               float* out) {
  Sums<rows> sums;
  vec totals[rows][NV];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < NV; ++v) totals[r][v] = vec{};
  sums.zero();
  for (int64_t begin = 0; begin < panel.k; begin += kSlabK) {
    const float* x = row_block(prepared, begin);
    const uint8_t* codes = panel.slab(begin) + W::scale_bytes;
    for (int64_t group = 0; group < kSlabK; group += kGroupK, codes += W::group_bytes) {
      prefetch_group<W>(codes);
      W::expand_group(codes, [&](int64_t i, const vec(&w)[NV]) HK_INLINED {
        sums.add(i, x + group + i, w);
      });
    }
    if (!panel.is_end(begin + kSlabK)) continue;
    vec scale[NV];
    panel.scale_at(begin, scale);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v)
        totals[r][v] += sums.total(r, v) * splat(W::factor) * scale[v];
    sums.zero();
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < NV; ++v) store(out + r * NR + v * VL, totals[r][v]);
}

// ---- not so few: by way of the first cache -----------------------------------------------------

// out += x w * factor * scale for `count` rows: x as in PreparedRows, w [length][NR]. Beside each
// group, `line_bytes` of what comes later are prefetched.
template <int rows = MR>
void add_tile(int64_t count, const float* x, const float* w, int64_t length, float factor,
              const vec (&scale)[NV], const uint8_t* later, int64_t line_bytes, float* out) {
  if constexpr (rows > 1)
    if (count < rows)
      return add_tile<rows - 1>(count, x, w, length, factor, scale, later, line_bytes, out);
  RegisterTile<rows> tile;
  tile.zero();
  for (int64_t k = 0; k < length; k += kGroupK, later += line_bytes) {
    for (int64_t line = 0; line < line_bytes; line += 64) __builtin_prefetch(later + line);
    tile.template multiply<kBlockK>(x, w, k, k + kGroupK);
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < NV; ++v) {
      float* to = out + r * NR + v * VL;
      store(to, load(to) + tile.at[r][v] * splat(factor) * scale[v]);
    }
}

template <class W, Scaled scaled>
HK_INLINE void multiply_cached(const Panel<W, scaled>& panel, const PreparedRows& prepared,
                               float* out) {
  constexpr int64_t most = scaled == Scaled::per_slab ? kSlabK : kScaleBlock;
  alignas(64) float expanded[most * NR];
  const int64_t tiles = (prepared.rows + MR - 1) / MR;
  std::memset(out, 0, sizeof(float) * size_t(prepared.rows * NR));
  for (int64_t begin = 0; begin < panel.k; begin += most) {
    const int64_t length = panel.k - begin < most ? panel.k - begin : most;
    for (int64_t s = 0; s < length; s += kSlabK)
      for_each_k<W>(panel.slab(begin + s), [&](int64_t k, const vec(&w)[NV]) HK_INLINED {
        for (int v = 0; v < NV; ++v) store(expanded + (s + k) * NR + v * VL, w[v]);
      });
    vec scale[NV];
    panel.scale_at(begin, scale);
    const float* x = row_block(prepared, begin);
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t first = t * prepared.rows / tiles, end = (t + 1) * prepared.rows / tiles;
      add_tile(end - first, x + first * kBlockK, expanded, length, W::factor, scale,
               panel.slab(begin) + kPrefetchAhead, t == 0 ? W::group_bytes : 0,
               out + first * NR);
    }
  }
}

template <class W, Scaled scaled, int rows = kMostDirect>
HK_INLINE void multiply_panel(const Panel<W, scaled>& panel, const PreparedRows& prepared,
                              float* out) {
  if (rows == kMostDirect && prepared.rows > rows) return multiply_cached(panel, prepared, out);
  if constexpr (rows > 1)
    if (prepared.rows < rows) return multiply_panel<W, scaled, rows - 1>(panel, prepared, out);
  multiply_direct<W, rows>(panel, prepared, out);
}

template <class W, Scaled scaled>
void multiply_panels(const LinearArgs& args, const PreparedRows& prepared, int64_t begin,
                     int64_t end) {
  alignas(64) float sums[kMostSkinnyRows * NR];
  for (int64_t panel = begin; panel < end; ++panel) {
    multiply_panel(Panel<W, scaled>(args, panel), prepared, sums);
    store_panel(args, prepared.first, prepared.rows, prepared.factors, panel * NR, sums);
  }
}

}  // namespace

void multiply_skinny(const LinearArgs& args, const PreparedRows& prepared, int64_t panel_begin,
                     int64_t panel_end) {
  with_weight_format(args.format, [&](auto weight) {
    using W = decltype(weight);
    if constexpr (W::mx) {
      multiply_panels<W, Scaled::per_slab>(args, prepared, panel_begin, panel_end);
    } else {
      if constexpr (is_quantised<W>)
        if (args.block_scales)
          return multiply_panels<W, Scaled::per_block>(args, prepared, panel_begin, panel_end);
      multiply_panels<W, Scaled::at_the_end>(args, prepared, panel_begin, panel_end);
    }
  });
}

}  // namespace hk::cpu::HK_ISA
