// Prefill attention for one work item: some rows of one request under one KV head.
//
//   for each tile of 256 keys that any row sees:
//     pack K and V into panels                                       (read in place, any layout)
//     for each block of register tiles of rows:
//       S = Q K^T          register tile by register tile, K panel in L1
//       P = 2^(S - max)    online softmax, one row at a time, S in L1
//       O = O * 2^(old max - max) + P V
//   O / sum -> out, max + log(sum) -> lse
//
// Choices. The query heads of a group share K and V, so packing is paid once per group. Products
// are bfloat16 if the processor multiplies bfloat16 and it holds all operands exactly
// (products.hpp). Otherwise they are float32, and bf16 costs as much as fp32. Panels outside the
// rows' ranges of keys are not computed.
#pragma once

#include "attention/item_rows.hpp"
#include "attention/products.hpp"
#include "attention/tile_pack.hpp"

namespace hk::cpu::HK_ISA {
namespace {

template <class Products, int D>
class ItemKernel : public ItemRows<Products, D> {
  using Rows = ItemRows<Products, D>;
  using Rows::args_, Rows::item_, Rows::buffers_, Rows::padded_rows_;
  using Rows::head_size, Rows::value_size;
  using Rows::kStride, Rows::kRows, Rows::kBlockRows, Rows::kUnit;
  using Rows::visible, Rows::in_tile, Rows::scores, Rows::weights;
  using typename Rows::operand;

 public:
  using Rows::Rows;

  void run(float* partials) {
    const Tiles tiles;
    this->begin();
    channel_offsets(args_.key, head_size(), buffers_.key_channels);
    channel_offsets(args_.value, value_size(), buffers_.value_channels);
    const Range keys = visible(0, padded_rows_);
    const int64_t first = item_.keys.begin, hidden = keys.begin - first;
    for (int64_t tile = first + hidden / kTileKeys * kTileKeys; tile < keys.end;
         tile += kTileKeys) {
      // Packing starts at a register tile's boundary: panels before it are never read.
      const int64_t count = min(keys.end, tile + kTileKeys) - tile;
      pack(tile, count);
      for (int64_t row = 0; row < padded_rows_; row += kBlockRows)
        row_block(tile, row, min(row + kBlockRows, padded_rows_));
    }
    this->finish(partials);
  }

 private:
  void pack(int64_t tile, int64_t count) {
    const int64_t request = item_.request, kv_head = item_.kv_head;
    token_offsets(args_, args_.key, request, kv_head, tile, count, buffers_.offsets);
    pack_tile<Panel::keys, kTileKeys>(args_, args_.key, head_size(), buffers_.offsets,
                                      buffers_.key_channels, count, buffers_.keys);
    token_offsets(args_, args_.value, request, kv_head, tile, count, buffers_.offsets);
    values_finite_ =
        pack_tile<Panel::values, kTileKeys>(args_, args_.value, value_size(), buffers_.offsets,
                                            buffers_.value_channels, count, buffers_.values);
  }

  void row_block(int64_t tile, int64_t begin, int64_t end) {
    const int64_t groups = (end - begin) / kRows;
    Range keys[kBlockRows / kRows] = {};
    for (int64_t g = 0; g < groups; ++g)
      keys[g] = in_tile(visible(begin + g * kRows, begin + (g + 1) * kRows), tile);
    for (int64_t panel = keys[0].begin / NR * NR; panel < keys[groups - 1].end; panel += NR)
      for (int64_t g = 0; g < groups; ++g)
        if (!clip(keys[g], panel, panel + NR).empty()) score_panel(begin, g, panel);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t row = begin + g * kRows;
      if (keys[g].empty()) continue;
      const Range whole{keys[g].begin / kUnit * kUnit, round_up(keys[g].end, kUnit)};
      this->softmax_rows(row, row - begin, whole, tile);
      accumulate(row, row - begin, keys[g], tile);
    }
  }

  HK_INLINE void score_panel(int64_t block, int64_t group, int64_t panel) {
    Products::template score<kStride>(buffers_.query + (block + group * kRows) * kStride,
                                      buffers_.keys + panel * head_size(), head_size(),
                                      scores(group * kRows) + panel);
  }

  // O = O * rescale + P V for a register tile of rows, which see `keys` of the tile.
  HK_INLINE void accumulate(int64_t row, int64_t in_block, Range keys, int64_t tile) {
    constexpr int64_t unit = Products::key_unit;
    const Range units{keys.begin / unit * unit, round_up(keys.end, unit)};
    for (int64_t c = 0; c < value_size(); c += NR) {
      float* output = buffers_.output + row * kStride + c;
      const operand* values = buffers_.values + c * kTileKeys;
      if (values_finite_)
        Products::template add<kStride>(output, buffers_.rescale + row, weights(in_block), values,
                                        units);
      else  // a hidden value that is not finite would matter: 0 * NaN is NaN
        for (int64_t r = 0; r < kRows; ++r)
          Products::template add_row<kStride>(output + r * kStride, buffers_.rescale + row + r,
                                              weights(in_block + r), values,
                                              in_tile(visible(row + r), tile));
    }
  }

  bool values_finite_ = true;
};

}  // namespace
}  // namespace hk::cpu::HK_ISA
