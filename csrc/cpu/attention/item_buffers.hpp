// What a thread holds while it computes one work item.
#pragma once

#include "attention/sequence.hpp"
#include "common/micro_gemm.hpp"

namespace hk::cpu::HK_ISA {

constexpr int64_t kTileKeys = 256;
constexpr int64_t kMaxHeadSize = 256;
constexpr int64_t kBlockRows = 2 * MR;

// Carved out of one allocation. `stride` is a row of Q and O.
struct Buffers {
  float *query, *output, *row_top, *row_sum, *rescale, *keys, *values, *scores;
  int64_t *offsets, *key_channels, *value_channels, *positions;

  static int64_t floats(int64_t rows, int64_t stride, int64_t head_size, int64_t value_size) {
    return rows * (2 * stride + 3 + 2) + kTileKeys * (head_size + round_up(value_size, NR)) +
           kBlockRows * kTileKeys + 2 * kTileKeys + 4 * kMaxHeadSize + 12 * 16;
  }

  Buffers(void* scratch, int64_t rows, int64_t stride, int64_t head_size, int64_t value_size) {
    char* at = static_cast<char*>(scratch);
    auto take = [&](int64_t count) {
      auto* p = reinterpret_cast<float*>(at);
      at += round_up(count * 4, 64);
      return p;
    };
    auto take_ints = [&](int64_t count) { return reinterpret_cast<int64_t*>(take(2 * count)); };
    offsets = take_ints(kTileKeys);
    key_channels = take_ints(kMaxHeadSize);
    value_channels = take_ints(kMaxHeadSize);
    positions = take_ints(rows);
    keys = take(kTileKeys * head_size);
    values = take(kTileKeys * round_up(value_size, NR));
    scores = take(kBlockRows * kTileKeys);
    query = take(rows * stride);
    output = take(rows * stride);
    row_top = take(rows);
    row_sum = take(rows);
    rescale = take(rows);
  }
};

}  // namespace hk::cpu::HK_ISA
