// The multiply of many rows in bfloat16: a panel of pairs along K times rows of bfloat16. Both hold
// their values exactly. Float32 scales multiply sums, over all of K or over a block of 128
// elements.
//
//   for each block of K (up to 1536 elements):                  A and the panel in L2
//     AMX:      2 x 2 tiles of 16 x 16 sums
//     vectors:  14 x 32 sums in registers
//
// Choices. A bfloat16 weight has the layout of a panel in memory, and is read in place. A block of
// K is long, because sums go to L2 and back once for each block. A and the panel may come from L2,
// which has to deliver 11 bytes of the panel for each clock of multiplying. With a single block,
// sums stay in L1.
#pragma once

#include <type_traits>

#include "common/amx_gemm.hpp"
#include "formats/byte_pairs.hpp"
#include "linear/many_floats.hpp"
#include "linear/row_form.hpp"

namespace hk::cpu::HK_ISA {

#if defined(__AVX512BF16__)

constexpr int64_t kSlabsPerScale = kScaleBlock / kSlabK;

// Expands a slab to pairs, through float32. Scales of mx blocks are powers of two, so bfloat16
// holds each product exactly.
template <class W>
HK_INLINE void expand_slab(const uint8_t* slab, uint16_t* out) {
  vec scale[NV] = {}, even[NV];
  if constexpr (W::mx) column_scales<W>(slab, scale);
  for_each_k<W>(slab, [&](int64_t k, const vec(&w)[NV]) HK_INLINED {
    for (int v = 0; v < NV; ++v) {
      vec x = w[v];
      if constexpr (W::factor != 1.0f) x *= splat(W::factor);
      if constexpr (W::mx) x *= scale[v];
      if (k % 2 == 0) {
        even[v] = x;
      } else {
        const ivec pairs = exact_pairs(even[v], x);
        std::memcpy(out + (k - 1) * NR + 2 * v * VL, &pairs, sizeof(pairs));
      }
    }
  });
}
template <class Small, bool mx>
HK_INLINE void expand_bytes(ByteWeight<Small, mx>, const uint8_t* slab, uint16_t* out) {
  if (mx && !scales_are_moderate(slab)) return expand_slab<ByteWeight<Small, mx>>(slab, out);
  expand_byte_pairs<Small, mx>(slab, out);
}

// Expands slabs of a panel to pairs.
template <class W>
void expand_pairs(const uint8_t* slab, int64_t slabs, uint16_t* out) {
  for (int64_t s = 0; s < slabs; ++s, slab += W::slab_bytes, out += kSlabK * NR) {
    if constexpr (requires { expand_bytes(W{}, slab, out); })
      expand_bytes(W{}, slab, out);
    else
      expand_slab<W>(slab, out);
  }
}

// Factors of the sums over each block of 128 elements along K: the weight's scale, and the rows'.
struct BlockFactors {
  const float* weight;  // one per block, or null
  const float* rows;    // [blocks][all_rows] from the tile's first row on, or null
  int64_t all_rows;
};

// Operands of a tile: rows of bfloat16, `a_row` elements apart, and a panel.
struct PairOperands {
  const uint16_t* a;
  int64_t a_row;
  const uint16_t* b;
  BlockFactors factors;
};

// sums (+)= products * factors, for one block.
HK_INLINE void add_scaled(const float* products, const BlockFactors& factors, int64_t block,
                          int64_t rows, bool first, float* sums) {
  const float weight = factors.weight ? factors.weight[block] : 1.0f;
  const float* of_rows = factors.rows ? factors.rows + block * factors.all_rows : nullptr;
  for (int64_t r = 0; r < rows; ++r, products += NR, sums += NR) {
    const vec factor = splat(of_rows ? weight * of_rows[r] : weight);
    for (int v = 0; v < NR; v += VL) {
      const vec before = first ? vec{} : load(sums + v);
      // Fused explicitly: the compiler would fuse only some rows, and equal rows would differ in
      // bits.
      store(sums + v, _mm512_fmadd_ps(load(products + v), factor, before));
    }
  }
}

template <int rows = kPairRows>
void multiply_pairs(const Tile& t, const PairOperands& of) {
  if constexpr (rows > 1)
    if (t.rows < rows) return multiply_pairs<rows - 1>(t, of);
  PairTile<rows> tile;
  if (t.slab == 0)
    tile.zero();
  else
    tile.load_from(t.sums, NR);
  tile.multiply_deep(of.a, of.a_row, of.b, 0, t.slabs * kSlabK, [&] { t.next.step(); });
  tile.store_to(t.sums, NR);
}

template <int rows = kPairRows>
void multiply_pairs_scaled(const Tile& t, const PairOperands& of) {
  if constexpr (rows > 1)
    if (t.rows < rows) return multiply_pairs_scaled<rows - 1>(t, of);
  for (int64_t first = 0; first < t.slabs; first += kSlabsPerScale) {
    const int64_t last = first + kSlabsPerScale < t.slabs ? first + kSlabsPerScale : t.slabs;
    alignas(64) float products[rows * NR];
    PairTile<rows> tile;
    tile.zero();
    tile.multiply_deep(of.a, of.a_row, of.b, first * kSlabK, last * kSlabK, [&] { t.next.step(); });
    tile.store_to(products, NR);
    add_scaled(products, of.factors, first / kSlabsPerScale, rows, t.slab + first == 0, t.sums);
  }
}

#if defined(__AMX_BF16__)

template <int halves>
void multiply_tiles(const Tile& t, const PairOperands& of) {
  const TileSums<halves> sums;
  if (t.slab == 0)
    sums.zero();
  else
    sums.load_from(t.sums, NR);
  for (int64_t s = 0; s < t.slabs; ++s, t.next.step())
    sums.multiply(of.a, of.a_row, of.b, s * kSlabK, (s + 1) * kSlabK);
  sums.store_to(t.sums, NR);
}

template <int halves>
void multiply_tiles_scaled(const Tile& t, const PairOperands& of) {
  for (int64_t first = 0; first < t.slabs; first += kSlabsPerScale) {
    const int64_t last = first + kSlabsPerScale < t.slabs ? first + kSlabsPerScale : t.slabs;
    alignas(64) float products[halves * kTileRows * NR];
    const TileSums<halves> sums;
    sums.zero();
    for (int64_t s = first; s < last; ++s, t.next.step())
      sums.multiply(of.a, of.a_row, of.b, s * kSlabK, (s + 1) * kSlabK);
    sums.store_to(products, NR);
    add_scaled(products, of.factors, first / kSlabsPerScale, t.rows, t.slab + first == 0, t.sums);
  }
}

#endif

struct PairPanel {
  static constexpr int64_t bytes = sizeof(uint16_t) * kLongestPairBlock * NR;
  // AMX's tiles always compute all their rows; the last ones may hold anything.
  static constexpr int64_t tile_rows = kHasTiles ? 2 * kTileRows : kPairRows, row_unit = kTileRows;

  explicit PairPanel(const LinearArgs& args)
      : x_(static_cast<const uint16_t*>(args.x)), x_row_(args.x_row), block_(pair_block(args.k)),
        scaled_(args.block_scales || args.activations == Activations::token_block) {
    with_weight_format(args.format, [&](auto weight) {
      using W = decltype(weight);
      if constexpr (!std::is_same_v<W, BF16Weight>) expand_ = expand_pairs<W>;
    });
  }
  HK_INLINE int64_t slabs() const { return block_ / kSlabK; }
  HK_INLINE const void* expand(const uint8_t* slab, int64_t count, const float* block_scales,
                               void* out) {
    block_scales_ = block_scales;
    if (!expand_) return slab;
    expand_(slab, count, static_cast<uint16_t*>(out));
    return out;
  }
  HK_INLINE void multiply(const Tile& t) const {
    const auto* b = static_cast<const uint16_t*>(t.panel);
    const int64_t all_rows = t.prepared.rows, block = t.slab / kSlabsPerScale;
    const float* row_factors = t.prepared.block_factors;
    if (row_factors) row_factors += block * all_rows + t.row;
    PairOperands of{nullptr, 0, b, {block_scales_, row_factors, all_rows}};
    if (t.prepared.in_place) {
      of.a = x_ + (t.prepared.first + t.row) * x_row_ + t.slab * kSlabK;
      of.a_row = x_row_;
    } else {
      of.a = reinterpret_cast<const uint16_t*>(t.prepared.data) + t.slab * kSlabK * all_rows +
             t.row * block_;
      of.a_row = block_;
    }
#if defined(__AMX_BF16__)
    if (t.rows > kTileRows) return (scaled_ ? multiply_tiles_scaled<2> : multiply_tiles<2>)(t, of);
    (scaled_ ? multiply_tiles_scaled<1> : multiply_tiles<1>)(t, of);
#else
    (scaled_ ? multiply_pairs_scaled<> : multiply_pairs<>)(t, of);
#endif
  }

 private:
  void (*expand_)(const uint8_t* slab, int64_t slabs, uint16_t* out) = nullptr;
  const float* block_scales_ = nullptr;
  const uint16_t* x_;
  int64_t x_row_, block_;
  bool scaled_;
};

#else  // row_form() never says bf16
using PairPanel = FloatPanel;
#endif

}  // namespace hk::cpu::HK_ISA
