// Results to global memory.
#pragma once

#include "../types/global_view.hpp"
#include "convert.hpp"

namespace hk {

// Rows of a result block that a lane stores at once, and parts that it stores a block in.
template <class T>
inline constexpr int kStoredRows = 16 / sizeof(T);
template <class T>
inline constexpr int kStoredParts = DefaultShape::kRows / 2 / kStoredRows<T>;
template <class T>
HK_DEVICE int stored_row(int part, Lane lane) {
  return kStoredRows<T> * (2 * part + lane.half);
}

// The 16 bytes of neighbouring rows that a lane stores at once of a result block (`stored_row`).
// For 16-bit types these are 8 rows from 16 * Part + 8 * lane.half on, for which the wave's halves
// exchange quads. For 32-bit types they are 4 rows from 8 * Part + 4 * lane.half on.
template <class T, int Part>
HK_DEVICE Vec<u32, 4> neighbouring_rows(const Block& src) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4);
  Vec<u32, 4> words;
  if constexpr (sizeof(T) == 4) {
    static_for<0, 4>([&](auto i) { words[i.value] = bit_cast<u32>(T(src[4 * Part + i])); });
  } else {
    static_for<0, 2>([&](auto i) {
      u32 first = convert<T>(pair(src, 4 * Part + i)),
          second = convert<T>(pair(src, 4 * Part + 2 + i));
      arch::swap_halves(first, second);
      words[i.value] = first;
      words[2 + i.value] = second;
    });
  }
  return words;
}

template <class T, int I>
HK_DEVICE void store_element(BoundedView dst, Vec<u32, 4> words, u32 offset) {
  if constexpr (sizeof(T) == 4) {
    __builtin_amdgcn_raw_buffer_store_b32(words[I], dst.descriptor, offset + I * sizeof(T), 0, 0);
  } else {
    const auto elements = bit_cast<Vec<i16, 8>>(words);
    __builtin_amdgcn_raw_buffer_store_b16(elements[I], dst.descriptor, offset + I * sizeof(T), 0,
                                          0);
  }
}

// Stores the transpose of a result block: lane's column is a row of dst, which begins at byte
// `row`, and the block's 32 rows are neighbouring channels. Each lane stores 16 bytes at once.
template <class T>
HK_DEVICE void store_transposed(BoundedView dst, u32 row, int channel, const Block& src,
                                Lane lane) {
  static_for<0, kStoredParts<T>>([&](auto part) {
    const u32 offset = row + (channel + stored_row<T>(part, lane)) * sizeof(T);
    __builtin_amdgcn_raw_buffer_store_b128(neighbouring_rows<T, part.value>(src), dst.descriptor,
                                           offset, 0, 0);
  });
}

// The same of channels below `channels` alone, which may be any number. `row()` is the lane's first
// byte: computed where it is used, as the registers of a GEMM's results leave no room for it
// before.
template <class T, class Row>
HK_DEVICE void store_transposed_below(BoundedView dst, const Row& row, int channel, i32 channels,
                                      const Block& src, Lane lane) {
  constexpr int kRows = kStoredRows<T>;
  static_for<0, kStoredParts<T>>([&](auto part) {
    const Vec<u32, 4> words = neighbouring_rows<T, part.value>(src);
    const i32 first = channel + stored_row<T>(part, lane);
    const u32 offset = row() + first * sizeof(T);
    if (first + kRows <= channels) {
      __builtin_amdgcn_raw_buffer_store_b128(words, dst.descriptor, offset, 0, 0);
    } else {
      static_for<0, kRows>([&](auto i) {
        if (first + i < channels) store_element<T, i.value>(dst, words, offset);
      });
    }
  });
}

// Stores one value per column, at byte `column`, from the lower half of the wave.
HK_DEVICE void store(BoundedView dst, u32 column, ColumnVector src, Lane lane) {
  if (lane.half == 0)
    __builtin_amdgcn_raw_buffer_store_b32(bit_cast<u32>(src), dst.descriptor, column, 0, 0);
}

}  // namespace hk
