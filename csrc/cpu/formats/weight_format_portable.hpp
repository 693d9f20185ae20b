// Weights of fewer than 16 bits for processors without vector instructions that widen them: a
// stream of codes in the order [k][column], looked up in a table.
#pragma once

#include "formats/weight_format_wide.hpp"

namespace hk::cpu::HK_ISA {

template <class Small, bool mx>
struct TableWeight : WeightLayout<uint8_t, Small, Small::bits, mx> {
  static constexpr float factor = 1.0f;
  static constexpr int bits = Small::bits;

  struct Table {
    float at[1 << bits];
    constexpr Table() : at() {
      for (uint32_t code = 0; code < 1u << bits; ++code) at[code] = Small::value(code);
    }
  };
  static constexpr Table table{};

  // Packs a group; each column is a whole number of bytes: 8, 6 or 4.
  static void pack_group(const uint8_t* codes, uint8_t* out) {
    for (int64_t n = 0; n < NR; ++n, out += bits) {
      uint64_t column = 0;
      for (int64_t k = 0; k < kGroupK; ++k) column |= uint64_t(codes[n * kSlabK + k]) << bits * k;
      std::memcpy(out, &column, bits);
    }
  }
  template <class F>
  static HK_INLINE void expand_group(const uint8_t* codes, F f) {
    vec w[kGroupK][NV];
    for (int64_t n = 0; n < NR; ++n, codes += bits) {
      uint64_t column = 0;
      std::memcpy(&column, codes, bits);
      for (int64_t k = 0; k < kGroupK; ++k)
        w[k][n / VL][n % VL] = table.at[column >> bits * k & ((1u << bits) - 1)];
    }
#pragma GCC unroll 8
    for (int k = 0; k < kGroupK; ++k) f(k, w[k]);
  }
};

template <class Small, bool mx>
using ByteWeight = TableWeight<Small, mx>;
template <class Small>
using SixBitWeight = TableWeight<Small, true>;
using NibbleWeight = TableWeight<E2M1, true>;

}  // namespace hk::cpu::HK_ISA
