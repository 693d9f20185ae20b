// Looks up rows of a packed weight for an embedding: the values that are multiplied, with their
// rotation undone.
//
// A row is a column of its panel. Each slab is expanded in the same way as for the multiply, and
// all other columns are dropped. That reads NR times as much as needed, which is still little
// beside a token's layers, since these read all of their weights.

#include "formats/rotate.hpp"
#include "formats/weight_format.hpp"

namespace hk::cpu::HK_ISA {
namespace {

// Expands the elements of column `column` of a slab, times their mx scale.
template <class W>
void expand_column(const uint8_t* slab, int64_t column, float* out) {
  alignas(64) float columns[NR];
  float scale = W::factor;
  if constexpr (W::mx) {
    vec scales[NV];
    column_scales<W>(slab, scales);
    for (int v = 0; v < NV; ++v) store(columns + v * VL, scales[v]);
    scale = columns[column];
  }
  for_each_k<W>(slab, [&](int64_t k, const vec(&w)[NV]) HK_INLINED {
    for (int v = 0; v < NV; ++v) store(columns + v * VL, w[v]);
    // the power of two first: together with a large scale it might overflow
    out[k] = W::mx ? columns[column] * W::factor * scale : columns[column] * scale;
  });
}

}  // namespace

void look_up(const RowsArgs& args, int64_t i, float* row) {
  const int64_t n = args.rows[i], slabs = (args.k + kSlabK - 1) / kSlabK;
  const int64_t blocks = (args.k + kScaleBlock - 1) / kScaleBlock;
  with_weight_format(args.format, [&](auto weight) {
    using W = decltype(weight);
    const uint8_t* slab = args.weight + n / NR * slabs * W::slab_bytes;
    for (int64_t s = 0; s < slabs; ++s, slab += W::slab_bytes)
      expand_column<W>(slab, n % NR, row + s * kSlabK);
  });
  const float factor = args.factors ? args.factors[n] : 1.0f;
  for (int64_t k = 0; k < args.k; ++k) {
    row[k] *= factor;
    if (args.block_scales) row[k] *= args.block_scales[n / kScaleBlock * blocks + k / kScaleBlock];
  }
  if (args.rotation) rotate(row, args.k, args.rotation);
  with_format(args.out_dtype, [&](auto format) {
    using T = decltype(format);
    auto* out = static_cast<typename T::type*>(args.out) + i * args.k;
    for (int64_t k = 0; k < args.k; k += 8) store8<T>(out + k, *reinterpret_cast<f8_u*>(row + k));
  });
}

}  // namespace hk::cpu::HK_ISA
