// Results to global memory.
#pragma once

#include "../types/global_view.hpp"
#include "convert.hpp"

namespace hk {

// The 8 of a result block's rows 16 * Part to 16 * Part + 15 that a lane stores: rows
// 16 * Part + 8 * lane.half and on. The wave's halves exchange quads.
template <class T, int Part>
HK_DEVICE Vec<u32, 4> neighbouring_rows(const Block& src) {
  Vec<u32, 4> words;
  static_for<0, 2>([&](auto i) {
    u32 first = convert<T>(pair(src, 4 * Part + i)), second = convert<T>(pair(src, 4 * Part + 2 + i));
    arch::swap_halves(first, second);
    words[i.value] = first;
    words[2 + i.value] = second;
  });
  return words;
}

// Stores the transpose of a result block: lane's column is row `lane.col` of dst, the block's 32
// rows are neighbouring channels. Each lane stores 16 bytes at once.
template <class T>
HK_DEVICE void store_transposed(BoundedView dst, u32 row_bytes, int channel, const Block& src, Lane lane) {
  static_for<0, 2>([&](auto part) {
    const u32 offset = lane.col * row_bytes + (channel + 16 * part + 8 * lane.half) * sizeof(T);
    __builtin_amdgcn_raw_buffer_store_b128(neighbouring_rows<T, part.value>(src), dst.descriptor, offset, 0, 0);
  });
}

// The same of channels below `channels` alone, which may be any number.
template <class T>
HK_DEVICE void store_transposed_below(BoundedView dst, u32 row_bytes, int channel, i32 channels,
                                      const Block& src, Lane lane) {
  static_assert(sizeof(T) == 2);
  static_for<0, 2>([&](auto part) {
    const Vec<u32, 4> words = neighbouring_rows<T, part.value>(src);
    const i32 first = channel + 16 * part + 8 * lane.half;
    const u32 offset = lane.col * row_bytes + first * sizeof(T);
    if (first + 8 <= channels) {
      __builtin_amdgcn_raw_buffer_store_b128(words, dst.descriptor, offset, 0, 0);
    } else {
      const auto elements = bit_cast<Vec<i16, 8>>(words);
      static_for<0, 8>([&](auto i) {
        if (first + i < channels)
          __builtin_amdgcn_raw_buffer_store_b16(elements[i.value], dst.descriptor, offset + i * sizeof(T), 0, 0);
      });
    }
  });
}

// Stores one value per column, from the lower half of the wave.
HK_DEVICE void store(BoundedView dst, u32 column_bytes, ColumnVector src, Lane lane) {
  if (lane.half == 0)
    __builtin_amdgcn_raw_buffer_store_b32(bit_cast<u32>(src), dst.descriptor, lane.col * column_bytes, 0, 0);
}

}  // namespace hk
