// Attention for one work item of a few rows, as decode has them, over keys and values in place.
//
//   for each tile of 128 keys that any row sees:
//     S = Q K^T, P = 2^(S - max), O = O * 2^(old max - max) + P V
//   O / sum -> out, max + log(sum) -> lse
//
// Choices. Packing a tile costs as much as multiplying it with two dozen rows, so nothing is
// packed: the bound is the bytes of keys and values. The first rows bring a tile into the nearest
// caches, where the next ones find it. Rows of other tokens see other keys. Keys that all rows see
// are multiplied together, those at either end row by row, since a hidden value may be NaN.
#pragma once

#include "attention/in_place.hpp"
#include "attention/item_rows.hpp"

namespace hk::cpu::HK_ISA {
namespace {

template <class Products>
class FewRowsKernel : public ItemRows<Products, 0> {
  using Rows = ItemRows<Products, 0>;
  using Rows::args_, Rows::item_, Rows::buffers_, Rows::rows_, Rows::padded_rows_;
  using Rows::kStride, Rows::kRows, Rows::kUnit;
  using Rows::visible, Rows::scores, Rows::weights;
  static constexpr int64_t kKeys = 128;
  static_assert(kKeys <= kTileKeys);

 public:
  using Rows::Rows;

  void run(float* partials) {
    const Tiles tiles(rows_);
    this->begin();
    // Rows that pad the last four take part in the softmax.
    std::memset(scores(rows_), 0, sizeof(float) * (padded_rows_ - rows_) * kTileKeys);
    const Range keys = visible(0, rows_);
    const int64_t first = item_.keys.begin, hidden = keys.begin - first;
    for (int64_t tile = first + hidden / kKeys * kKeys; tile < keys.end; tile += kKeys) {
      find(tile, min(keys.end, tile + kKeys));
      score(tile, in_tile(keys, tile));
      accumulate(tile);
    }
    this->finish(partials);
  }

 private:
  // Finds the tile's runs of keys and values.
  HK_INLINE void find(int64_t tile, int64_t end) {
    run_offsets<Products::kKeyRun>(args_, args_.key, item_.request, item_.kv_head, {tile, end},
                                   Products::key_apart(args_.key), buffers_.offsets);
    run_offsets<Products::kValueRun>(args_, args_.value, item_.request, item_.kv_head, {tile, end},
                                     Products::value_apart(args_.value), buffers_.value_offsets);
  }

  static HK_INLINE Range in_tile(Range keys, int64_t tile) {
    return clip({keys.begin - tile, keys.end - tile}, 0, kKeys);
  }

  // Computes the weights of all rows and rescales their sums; `keys` of the tile are seen.
  HK_INLINE void score(int64_t tile, Range keys) {
    const int64_t skipped = keys.begin / kRunKeys * kRunKeys;
    Products::template score<kStride>(buffers_.query, rows_, args_.key,
                                      buffers_.offsets + skipped / Products::kKeyRun,
                                      keys.end - skipped, args_.head_size, scores(0) + skipped);
    const Range whole{keys.begin / kUnit * kUnit, round_up(keys.end, kUnit)};
    for (int64_t row = 0; row < padded_rows_; row += kRows)
      this->softmax_rows(row, row, whole, tile);
  }

  // Multiplies the keys that all rows see for all rows, and those at either end row by row.
  HK_INLINE void accumulate(int64_t tile) {
    Range all = in_tile({visible(rows_ - 1).begin, visible(0).end}, tile);
    all.end = max(all.begin, all.end);
    add(0, rows_, buffers_.rescale, all);
    if (buffers_.positions[0] == buffers_.positions[rows_ - 1]) return;
    for (int64_t row = 0; row < rows_; ++row) {
      const Range keys = in_tile(visible(row), tile);
      add(row, 1, kKeep, {keys.begin, min(keys.end, all.begin)});
      add(row, 1, kKeep, {max(keys.begin, all.end), keys.end});
    }
  }

  HK_INLINE void add(int64_t row, int64_t rows, const float* rescale, Range keys) {
    Products::template add<kStride>(buffers_.output + row * kStride, rows, rescale, weights(row),
                                    args_.value, buffers_.value_offsets, keys, args_.value_size);
  }
};

}  // namespace
}  // namespace hk::cpu::HK_ISA
