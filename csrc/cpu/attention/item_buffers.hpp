// Buffers of a thread while it computes one work item.
#pragma once

#include "attention/sequence.hpp"
#include "common/micro_gemm.hpp"

namespace hk::cpu::HK_ISA {

constexpr int64_t kTileKeys = 256;
constexpr int64_t kMaxHeadSize = 256;

// Sizes of an item. `rows`: rows, rounded up to whole register tiles. `block_rows`: rows of a
// block. `stride`: elements from one row of Q or O to the next. `packed_keys`: keys of a packed tile.
struct ItemSizes {
  int64_t rows, block_rows, stride, head_size, value_size, packed_keys;
};

// The buffers, all parts of one allocation. Queries, keys, values and weights have the type
// `operand`. Weights in float32 replace the scores in place.
template <class operand>
struct Buffers {
  operand *query, *keys, *values, *weights;
  float *output, *row_top, *row_sum, *rescale, *sums, *scores;
  int64_t *offsets, *value_offsets, *key_channels, *value_channels, *positions;

  static int64_t bytes(const ItemSizes& of) {
    Buffers unplaced;
    return unplaced.place(nullptr, of) - static_cast<char*>(nullptr);
  }
  Buffers(void* scratch, const ItemSizes& of) { place(static_cast<char*>(scratch), of); }

 private:
  Buffers() = default;

  // Places the buffers from `at` on; returns the end of the last one.
  char* place(char* at, const ItemSizes& of) {
    auto take = [&]<class T>(T*& to, int64_t count) {
      to = reinterpret_cast<T*>(at);
      at += round_up(count * int64_t(sizeof(T)), 64);
    };
    take(offsets, kTileKeys);
    take(value_offsets, kTileKeys);
    take(key_channels, kMaxHeadSize);
    take(value_channels, kMaxHeadSize);
    take(positions, of.rows);
    take(keys, of.packed_keys * of.head_size);
    take(values, of.packed_keys * round_up(of.value_size, NR));
    take(scores, of.block_rows * kTileKeys);
    if constexpr (sizeof(operand) == sizeof(float))
      weights = scores;
    else
      take(weights, of.block_rows * kTileKeys);
    take(query, of.rows * of.stride);
    take(output, of.rows * of.stride);
    take(row_top, of.rows);
    take(row_sum, of.rows);
    take(rescale, of.rows);
    take(sums, of.rows * VL);
    return at;
  }
};

}  // namespace hk::cpu::HK_ISA
