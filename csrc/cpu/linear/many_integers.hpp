// The multiply of many rows in integers (integer_rows.hpp). The 32-bit lanes of an expanded panel
// are four bytes or two words, neighbours along K; they are multiplied by as many elements of a
// row.
//
//   for each slab:
//     bytes:  for each part:  16-bit sums of pairs start at the offset for `most`, += products
//                             32-bit sums += pairs of them
//     words:  32-bit sums += products of pairs
//     totals[row] += sums * the row's scale * the columns' scales
//
// Choices. Sums of a slab fill the registers, so totals are in the first-level cache: one load and
// one store for each 32 products of a lane. A lane has four bytes, not two as for few rows: this
// halves the broadcasts, and sums end up as wide as floats. Words are converted from floats, since
// a direct conversion by products of significands and powers was no faster.
#pragma once

#include "linear/integer_rows.hpp"
#include "linear/many_floats.hpp"

namespace hk::cpu::HK_ISA {

#if defined(__AVX2__)

// A slab of a panel, expanded for rows in slabs of type `Slab`.
template <class Slab>
struct alignas(64) WholeSlab {
  uint8_t lanes[Slab::lanes][NV][VL * 4];
  float scale[NR];
};

// Expands a slab of codes: calls f(lane, w) with the registers w of the columns.
template <class W, class F>
HK_INLINE void expand_quads(const uint8_t* slab, F f) {
  const uint8_t* codes = slab + W::scale_bytes;
  for (int64_t g = 0; g < kSlabK / kGroupK; ++g, codes += W::group_bytes)
    W::expand_bytes(
        codes, [&](int64_t quad, const bytes(&w)[NV]) HK_INLINED { f(g * kGroupK / 4 + quad, w); });
}
template <class W, class F>
HK_INLINE void expand_words(const uint8_t* slab, F f) {
  ivec even[NV];
  for_each_k<W>(slab, [&](int64_t k, const vec(&w)[NV]) HK_INLINED {
    ivec pair[NV];
    for (int v = 0; v < NV; ++v) {
      const vec units = w[v] * splat(W::factor * W::small::unit);
      const ivec whole = __builtin_convertvector(units, ivec);
      if (k % 2 == 0)
        even[v] = whole & 0xffff;
      else
        pair[v] = even[v] | whole << 16;
    }
    if (k % 2 == 1) f(k / 2, pair);
  });
}

template <class W, class Slab>
void expand_whole(const uint8_t* slab, int64_t slabs, WholeSlab<Slab>* out) {
  for (int64_t s = 0; s < slabs; ++s, slab += W::slab_bytes, ++out) {
    vec scale[NV];
    column_scales<W>(slab, scale);
    for (int v = 0; v < NV; ++v) store(out->scale + v * VL, scale[v]);
    const auto keep = [&](int64_t lane, const auto& w)
                          HK_INLINED { std::memcpy(out->lanes[lane], w, sizeof(w)); };
    if constexpr (std::is_same_v<Slab, QuadSlab>)
      expand_quads<W>(slab, keep);
    else
      expand_words<W>(slab, keep);
  }
}

// Sums the products of a slab, in 16 bits over each of its parts.
template <int parts>
struct Pairs {
  template <int rows>
  static HK_INLINE void multiply(const WholeSlab<QuadSlab>& w, const QuadSlab* x,
                                 ivec (&sums)[rows][NV]) {
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
        for (int v = 0; v < NV; ++v) std::memcpy(&b[v], w.lanes[q][v], sizeof(b[v]));
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

// Sums the products of a slab by dot products in 32 bits, of words or (on AVX-512) of bytes.
struct DotProducts {
  template <class Slab, int rows>
  static HK_INLINE void multiply(const WholeSlab<Slab>& w, const Slab* x, ivec (&sums)[rows][NV]) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < NV; ++v) sums[r][v] = ivec{} + x[r].all;
#pragma GCC unroll 2
    for (int64_t lane = 0; lane < Slab::lanes; ++lane) {
      ivec b[NV];
      for (int v = 0; v < NV; ++v) std::memcpy(&b[v], w.lanes[lane][v], sizeof(b[v]));
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r)
        for (int v = 0; v < NV; ++v)
          add_dot_products(sums[r][v], b[v], x[r].whole + kSlabK / Slab::lanes * lane);
    }
  }
};

template <class Products, class Slab, int rows>
__attribute__((noinline)) void multiply_whole(const Tile& t) {
  const auto* w = static_cast<const WholeSlab<Slab>*>(t.panel);
  const Slab* x = slab_of<Slab>(t.prepared, t.row, t.slab);
  const int64_t all_rows = t.prepared.rows, slabs = t.slabs;
  float* totals = t.sums;
  Prefetch next = t.next;
  for (int64_t s = 0; s < slabs; ++s, ++w, x += all_rows, next.step()) {
    for (int64_t byte = 0; byte < rows * int64_t(sizeof(Slab)); byte += 64)
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

template <class Products, class Slab, int rows = MR>
void multiply_rows(const Tile& t) {
  if constexpr (rows > 1)
    if (t.rows < rows) return multiply_rows<Products, Slab, rows - 1>(t);
  multiply_whole<Products, Slab, rows>(t);
}

// The panel type for pairs of formats whose rows are held in slabs of type `Slab`.
template <class Slab>
struct IntegerPanel {
  static constexpr int64_t slabs() { return 128 / Slab::lanes; }  // 9 KiB on AVX2, 18 on AVX-512
  static constexpr int64_t bytes = sizeof(WholeSlab<Slab>) * (128 / Slab::lanes);
  static constexpr int64_t tile_rows = MR, row_unit = 1;
  void (*expand_)(const uint8_t* slab, int64_t slabs, WholeSlab<Slab>* out);
  void (*multiply_)(const Tile&);

  explicit IntegerPanel(const LinearArgs& args) {
    with_mx_formats(args, [&](auto weight, auto x) {
      using W = decltype(weight);
      using X = decltype(x);
      if constexpr (has_slabs<W, X, Slab>()) {
        expand_ = expand_whole<W, Slab>;
        if constexpr (std::is_same_v<Slab, WordSlab>) {
          multiply_ = multiply_rows<DotProducts, Slab>;
        } else {
          multiply_ = multiply_rows<Pairs<kQuadParts<typename W::small, X>>, Slab>;
#if defined(__AVX512F__)
          if (args.dot_products) multiply_ = multiply_rows<DotProducts, Slab>;
#endif
        }
      }
    });
  }
  HK_INLINE const void* expand(const uint8_t* slab, int64_t count, const float*, void* out) const {
    expand_(slab, count, static_cast<WholeSlab<Slab>*>(out));
    return out;
  }
  HK_INLINE void multiply(const Tile& t) const {
    if (t.slab == 0) std::memset(t.sums, 0, sizeof(float) * size_t(t.rows * NR));
    multiply_(t);
  }
};
using QuadPanel = IntegerPanel<QuadSlab>;
using WordPanel = IntegerPanel<WordSlab>;

#else  // no format has integers: row_form() never says quads or words
using QuadPanel = FloatPanel;
using WordPanel = FloatPanel;
#endif

}  // namespace hk::cpu::HK_ISA
