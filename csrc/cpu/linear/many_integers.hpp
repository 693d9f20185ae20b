// Many rows in integers (integer_rows.hpp): bytes of an expanded panel, four neighbours along K in
// a 32-bit lane, times four elements of a row in every lane.
//
//   for each slab:
//     for each part of it:  16-bit sums of pairs start with what `most` adds, += products
//                           32-bit sums += pairs of them
//     totals[row] += sums * the row's scale * the columns' scales
//
// Choices. Sums of a slab fill the registers, so totals are in the first cache: a load and a store
// for each 32 products of a lane. Four neighbours in a lane, and not two as for few rows: half as
// many broadcasts, and the sums end up as wide as floats.
#pragma once

#include "linear/integer_rows.hpp"
#include "linear/many_floats.hpp"

namespace hk::cpu::HK_ISA {

#if defined(__AVX2__)

// A slab of a panel, expanded.
struct alignas(64) WholeSlab {
  uint8_t quads[kSlabK / 4][NV][VL * 4];
  float scale[NR];
};

template <class W>
void expand_whole(const uint8_t* slab, int64_t slabs, WholeSlab* out) {
  for (int64_t s = 0; s < slabs; ++s, slab += W::slab_bytes, ++out) {
    vec scale[NV];
    column_scales<W>(slab, scale);
    for (int v = 0; v < NV; ++v) store(out->scale + v * VL, scale[v]);
    const uint8_t* codes = slab + W::scale_bytes;
    for (int64_t g = 0; g < kSlabK / kGroupK; ++g, codes += W::group_bytes)
      W::expand_bytes(codes, [&](int64_t quad, const bytes(&w)[NV]) HK_INLINED {
        std::memcpy(out->quads[g * kGroupK / 4 + quad], w, sizeof(w));
      });
  }
}

HK_INLINE ivec splat_lane(const void* four_bytes) {
  int32_t lane;
  std::memcpy(&lane, four_bytes, sizeof(lane));
  return ivec{} + lane;
}

// sums = the products of a slab, added up in 16 bits over each of its parts.
template <int parts>
struct Pairs {
  template <int rows>
  static HK_INLINE void multiply(const WholeSlab& w, const QuadSlab* x, ivec (&sums)[rows][NV]) {
    constexpr int quads = kSlabK / 4 / parts;
#pragma GCC unroll 2
    for (int part = 0; part < parts; ++part) {
      ivec pairs[rows][NV];
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r)
        for (int v = 0; v < NV; ++v) pairs[r][v] = splat_lane(x[r].parts[part]);
#pragma GCC unroll 2
      for (int64_t q = part * quads; q < (part + 1) * quads; ++q) {
        ivec b[NV];
        for (int v = 0; v < NV; ++v) std::memcpy(&b[v], w.quads[q][v], sizeof(b[v]));
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r) {
          const ivec a = splat_lane(x[r].whole + 4 * q);
          for (int v = 0; v < NV; ++v) add_products(pairs[r][v], b[v], a);
        }
      }
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r)
        for (int v = 0; v < NV; ++v) {
          const ivec sum = join_sums(pairs[r][v]);
          sums[r][v] = part == 0 ? sum : sums[r][v] + sum;
        }
    }
  }
};

#if defined(__AVX512F__)
// The same by dot products of bytes, in 32 bits.
struct Quads {
  template <int rows>
  static HK_INLINE void multiply(const WholeSlab& w, const QuadSlab* x, ivec (&sums)[rows][NV]) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v) sums[r][v] = ivec{} + x[r].all;
#pragma GCC unroll 2
    for (int64_t q = 0; q < kSlabK / 4; ++q) {
      ivec b[NV];
      for (int v = 0; v < NV; ++v) std::memcpy(&b[v], w.quads[q][v], sizeof(b[v]));
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r)
        for (int v = 0; v < NV; ++v) add_dot_products(sums[r][v], b[v], x[r].whole + 4 * q);
    }
  }
};
#endif

template <class Products, int rows>
__attribute__((noinline)) void multiply_quads(const Tile& t) {
  const auto* w = static_cast<const WholeSlab*>(t.panel);
  const QuadSlab* x = quad_slab(t.prepared, t.row, t.slab);
  const int64_t all_rows = t.prepared.rows, slabs = t.slabs;
  float* totals = t.sums;
  Prefetch next = t.next;
  for (int64_t s = 0; s < slabs; ++s, ++w, x += all_rows, next.step()) {
    for (int64_t byte = 0; byte < rows * int64_t(sizeof(QuadSlab)); byte += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(x + all_rows) + byte);
    ivec sums[rows][NV];
    Products::multiply(*w, x, sums);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v) {
        float* total = totals + r * NR + v * VL;
        const vec sum = __builtin_convertvector(sums[r][v], vec);
        store(total, load(total) + sum * splat(x[r].scale) * load(w->scale + v * VL));
      }
  }
  t.next = next;
}

template <class Products, int rows = MR>
void multiply_quads_of(const Tile& t) {
  if constexpr (rows > 1)
    if (t.rows < rows) return multiply_quads_of<Products, rows - 1>(t);
  multiply_quads<Products, rows>(t);
}

struct QuadPanel {
  static constexpr int64_t slabs = 16;
  static constexpr int64_t bytes = sizeof(WholeSlab) * slabs;
  void (*expand_)(const uint8_t* slab, int64_t slabs, WholeSlab* out);
  void (*multiply_)(const Tile&);

  explicit QuadPanel(const LinearArgs& args) {
    with_weight_format(args.format, [&](auto weight) {
      using W = decltype(weight);
      if constexpr (W::has_integers) {
        expand_ = expand_whole<W>;
        multiply_ = multiply_quads_of<Pairs<kQuadParts<typename W::small>>>;
#if defined(__AVX512F__)
        if (args.dot_products) multiply_ = multiply_quads_of<Quads>;
#endif
      }
    });
  }
  HK_INLINE void expand(const uint8_t* slab, int64_t count, const float*, void* out) const {
    expand_(slab, count, static_cast<WholeSlab*>(out));
  }
  HK_INLINE void multiply(const Tile& t) const {
    if (t.slab == 0) std::memset(t.sums, 0, sizeof(float) * size_t(t.rows * NR));
    multiply_(t);
  }
};

#else  // no format has integers: row_form() never says quads
using QuadPanel = FloatPanel;
#endif

}  // namespace hk::cpu::HK_ISA
