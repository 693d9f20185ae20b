// The multiply of many rows in float32: every format is expanded to rows of NR values.
#pragma once

#include "linear/many_panel.hpp"

namespace hk::cpu::HK_ISA {

// Expands slabs. Multiplies by the power of two first: times a large scale it might overflow.
template <class W, bool block_scaled>
void expand(const uint8_t* slab, int64_t slabs, const float* block_scales, float* out) {
  for (int64_t s = 0; s < slabs; ++s, slab += W::slab_bytes, out += kSlabK * NR) {
    vec scale[NV] = {};
    if constexpr (W::mx) column_scales<W>(slab, scale);
    if constexpr (block_scaled)
      for (auto& x : scale) x = splat(block_scales[s * kSlabK / kScaleBlock]);
    for_each_k<W>(slab, [&](int64_t k, const vec(&w)[NV]) HK_INLINED {
      for (int v = 0; v < NV; ++v) {
        vec x = w[v];
        if constexpr (W::factor != 1.0f) x *= splat(W::factor);
        if constexpr (W::mx || block_scaled) x *= scale[v];
        store(out + k * NR + v * VL, x);
      }
    });
  }
}

// C (+)= A B for `count` rows; A has rows of kBlockK, B and C have rows of NR.
template <int rows = MR>
HK_INLINE void multiply_tile(int64_t count, const float* a, const float* b, int64_t k, float* c,
                             bool first, Prefetch& next) {
  if constexpr (rows > 1)
    if (count < rows) return multiply_tile<rows - 1>(count, a, b, k, c, first, next);
  RegisterTile<rows> tile;
  if (first)
    tile.zero();
  else
    tile.load_from(c, NR);
  for (int64_t begin = 0; begin < k; begin += kSlabK, next.step())
    tile.template multiply<kBlockK>(a, b, begin, begin + kSlabK);
  tile.store_to(c, NR);
}

// A block of K is kBlockK elements.
struct FloatPanel {
  static constexpr int64_t slabs() { return kBlockK / kSlabK; }
  static constexpr int64_t bytes = sizeof(float) * kBlockK * NR;
  static constexpr int64_t tile_rows = MR, row_unit = 1;
  void (*expand_)(const uint8_t* slab, int64_t slabs, const float* block_scales, float* out);

  explicit FloatPanel(const LinearArgs& args) {
    with_weight_format(args.format, [&](auto weight) {
      using W = decltype(weight);
      expand_ = HK_ISA::expand<W, false>;
      if constexpr (is_quantised<W> && !W::mx)
        if (args.block_scales) expand_ = HK_ISA::expand<W, true>;
    });
  }
  HK_INLINE const void* expand(const uint8_t* slab, int64_t count, const float* block_scales,
                               void* out) const {
    expand_(slab, count, block_scales, static_cast<float*>(out));
    return out;
  }
  HK_INLINE void multiply(const Tile& t) const {
    const float* a = t.prepared.data + t.slab * kSlabK * t.prepared.rows + t.row * kBlockK;
    multiply_tile(t.rows, a, static_cast<const float*>(t.panel), t.slabs * kSlabK, t.sums,
                  t.slab == 0, t.next);
  }
};

}  // namespace hk::cpu::HK_ISA
