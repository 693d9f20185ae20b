// Conversion of float32 results to 16-bit operands.
#pragma once

#include "map.hpp"

namespace hk {

// One word: two elements rounded to nearest even.
template <class T>
HK_DEVICE u32 convert(Pair src) {
  return bit_cast<u32>(__builtin_convertvector(src, Vec<T, 2>));
}

// dst = the pair `Index` of the fragment's rows. A fragment takes 16 rows of a result block.
template <class T, int Pair_, class Shape, class Source>
HK_DEVICE void convert(Fragment<T, Shape>& dst, Source src) {
  dst.words[Pair_] = convert<T>(src);
}

}  // namespace hk
