// A swizzle that no shipped kernel uses: rows follow one another, and the place of a chunk among
// eight is XORed with the row's number in its pair. Copies of any width fill it.
#pragma once

#include "hk/hk.hpp"

namespace hk {

template <int RowBytes>
struct XorRows : PeriodicReaders<XorRows<RowBytes>> {
  static constexpr int kPeriod = 16, kMixedChunks = 8;
  static constexpr int kBlockStride = kCopyBlock;
  static constexpr int kRowsPerBlock = kCopyBlock / RowBytes;
  static constexpr int kBlocksPer16 = 16 / kRowsPerBlock;

  HK_DEVICE static constexpr int offset(int row, int chunk) {
    return row * RowBytes + (chunk ^ row / 2 % 8) * 16;
  }
  HK_DEVICE static constexpr int copied_row(int block, int lane) {
    return place(block, lane) / RowBytes;
  }
  HK_DEVICE static constexpr int copied_byte(int block, int lane) {
    return place(block, lane) % RowBytes ^ copied_row(block, lane) / 2 % 8 * 16;
  }

 private:
  HK_DEVICE static constexpr int place(int block, int lane) {
    return block * kCopyBlock + lane * arch::kCopyBytes;
  }
};

}  // namespace hk
