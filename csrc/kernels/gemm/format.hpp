// Formats of the operands, and the instructions of the matrix unit for each.
//
// Operands move as pieces of 16 bytes of a row, whatever they hold. A format states
//   A, W                     the elements of activations and weights
//   kPiecesA, kPiecesW       pieces that a lane holds of a *part*: what is multiplied at once
//   kBlockScales             whether every 128 of the depth have scales of their own (scales.hpp)
//   multiply(sum, a, w)      sum += the part's product, as C^T
//   wait_for_sums()          after it the sums may be read
#pragma once

#include "hk/hk.hpp"

namespace hk::gemm {

using Piece = Fragment<i16>;

// After it the sums of any matrix instruction may be read: 20 wait states.
HK_DEVICE void wait_for_any_sums() {
  fence_schedule();
  asm volatile("s_nop 15\n\ts_nop 3");
  fence_schedule();
}

// Zeros, made here: the compiler would make them anew wherever they might be used first.
template <int Rows, int Cols>
HK_DEVICE void clear(ResultTile<Rows, Cols>& sums) {
  for (auto& line : sums.block)
    for (auto& block : line) {
      fill(block, 0);
      pin_vector(block);
    }
}

// Base of formats whose results the compiler waits for.
struct Waiting {
  static constexpr bool kBlockScales = false;

  HK_DEVICE static void wait_for_sums() {}
};

// The same 16-bit type on both sides.
template <class T>
struct SixteenBit : Waiting {
  using A = T;
  using W = T;
  static constexpr int kPiecesA = 1, kPiecesW = 1;

  HK_DEVICE static void multiply(Block& sum, const Piece (&a)[1], const Piece (&w)[1]) {
    sum = Mma<T>::multiply(bit_cast<Vec<T, 8>>(w[0].words), bit_cast<Vec<T, 8>>(a[0].words), sum);
  }
};

// FP8 codes on both sides: 64 of a row at once, at twice the rate.
struct Fp8 {
  using A = E4m3;
  using W = E4m3;
  static constexpr int kPiecesA = 2, kPiecesW = 2;
  static constexpr bool kBlockScales = false;

  HK_DEVICE static void multiply(Block& sum, const Piece (&a)[2], const Piece (&w)[2]) {
    sum = arch::multiply_e4m3(both(w), both(a), sum);
  }

  // LLVM 22 takes these codes for FP4, which is done in half the passes, and waits for 12 states.
  HK_DEVICE static void wait_for_sums() { wait_for_any_sums(); }

 private:
  HK_DEVICE static Vec<u32, 8> both(const Piece (&pieces)[2]) {
    return __builtin_shufflevector(pieces[0].words, pieces[1].words, 0, 1, 2, 3, 4, 5, 6, 7);
  }
};

struct Fp8Blocks : Fp8 {
  static constexpr bool kBlockScales = true;
};

// FP8 codes as weights, widened to the 16-bit type of the activations, which has them all. They are
// packed so that a lane's 16 codes belong to the 8 neighbours of two of its pieces.
template <class T, bool BlockScales = false>
struct Widened : Waiting {
  static constexpr bool kBlockScales = BlockScales;
  using A = T;
  using W = E4m3;
  static constexpr int kPiecesA = 2, kPiecesW = 1;

  HK_DEVICE static void multiply(Block& sum, const Piece (&a)[2], const Piece (&w)[1]) {
    static_for<0, 2>([&](auto half) {
      Vec<u32, 4> wide;
      static_for<0, 4>([&](auto i) {
        wide[i.value] = arch::widen_e4m3<T, i % 2>(w[0].words[2 * half + i / 2]);
      });
      sum = Mma<T>::multiply(bit_cast<Vec<T, 8>>(wide), bit_cast<Vec<T, 8>>(a[half].words), sum);
    });
  }
};

template <class T>
using WidenedBlocks = Widened<T, true>;

template <class T>
inline constexpr int kElementBytes = sizeof(T);
template <>
inline constexpr int kElementBytes<E4m3> = 1;

}  // namespace hk::gemm
