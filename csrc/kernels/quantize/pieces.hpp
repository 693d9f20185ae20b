// Rows in pieces: the 16 bytes of x that a lane loads at once, and the codes of its elements.
#pragma once

#include "hk/args/quantize_fp8.hpp"
#include "hk/hk.hpp"

// Inlines a lambda that kernels share. Without it the order in which the compiler gets to the
// lambda, and so the code of each kernel, depends on the other kernels.
#define HK_INLINED __attribute__((always_inline))

namespace hk::quantize {

template <class T>
struct Piece {
  static constexpr int kElements = 16 / sizeof(T);
  static constexpr int kCodeWords = kElements / 4;
  using Codes = Vec<u32, kCodeWords>;

  Vec<u32, 4> words;

  HK_DEVICE Pair values(int index) const {  // elements 2 * index and the next
    if constexpr (sizeof(T) == 4)
      return {bit_cast<f32>(words[2 * index]), bit_cast<f32>(words[2 * index + 1])};
    else
      return __builtin_convertvector(bit_cast<Vec<T, 2>>(u32(words[index])), Pair);
  }
};

// Whether pieces are accessed whole: every row begins and ends with one.
template <class T>
HK_DEVICE bool is_whole(const QuantizeFp8Args& args) {
  constexpr u32 kElements = Piece<T>::kElements;
  const u32 x = u32(address(args.x)) | u32(args.x_row) * u32(sizeof(T));
  const u32 codes = u32(address(args.codes)) | u32(args.k);
  return x % 16 == 0 && codes % kElements == 0;
}

// One row of x and of the codes. Past its end loads give zeros, and stores vanish.
template <class T, bool Whole>
struct Row {
  static constexpr int kElements = Piece<T>::kElements;
  // Whether `load` only starts loads: halves of words it puts together.
  static constexpr bool kInFlight = Whole || sizeof(T) == 4;
  BoundedView x, codes;

  HK_DEVICE Row(const QuantizeFp8Args& args, u32 row)
      : x(address(args.x) + offset(row, args.x_row) * sizeof(T), u32(args.k) * u32(sizeof(T))),
        codes(address(args.codes) + offset(row, args.k), args.k) {}

  HK_DEVICE Piece<T> load(u32 column) const {
    if constexpr (Whole) return {load_words<4>(x, column * u32(sizeof(T)))};
    Piece<T> piece;
    if constexpr (sizeof(T) == 4)
      static_for<0, 4>([&](auto i) HK_INLINED {
        piece.words[i.value] = load_word(x, (column + i.value) * u32(sizeof(T)));
      });
    else
      static_for<0, 4>([&](auto i) HK_INLINED {
        const u32 at = (column + 2 * i.value) * u32(sizeof(T));
        piece.words[i.value] = load_half(at) | load_half(at + u32(sizeof(T))) << 16;
      });
    return piece;
  }

  HK_DEVICE void store(u32 column, typename Piece<T>::Codes src) const {
    if constexpr (!Whole)
      static_for<0, kElements>([&](auto i) HK_INLINED {
        __builtin_amdgcn_raw_buffer_store_b8(src[i / 4] >> i % 4 * 8, codes.descriptor,
                                             column + i.value, 0, 0);
      });
    else if constexpr (Piece<T>::kCodeWords == 1)
      __builtin_amdgcn_raw_buffer_store_b32(src[0], codes.descriptor, column, 0, 0);
    else
      __builtin_amdgcn_raw_buffer_store_b64(src, codes.descriptor, column, 0, 0);
  }

 private:
  HK_DEVICE u32 load_half(u32 at) const {
    return (unsigned short)__builtin_amdgcn_raw_buffer_load_b16(x.descriptor, at, 0, 0);
  }
};

}  // namespace hk::quantize
