// Formats of the operands, and the instructions of the matrix unit for each.
//
// Operands move as pieces of 16 bytes of a row, whatever they hold. A format states
//   A, W                     the elements of activations and weights
//   kStep                    the depth of a step
//   kPartDepth               the depth of a *part*: what is multiplied at once
//   kWordsA, kWordsW         words that a lane holds of a part
//   kScales                  what has scales (Scales)
//   kPackedA                 whether activations are packed as weights are
//   multiply(sum, a, w)      sum += the part's product, as C^T
//   wait_for_sums()          after it the sums may be read
#pragma once

#include "hk/arch/gfx950_mx.hpp"
#include "hk/hk.hpp"

namespace hk::gemm {

using Piece = Fragment<i16>;

// A lane's words of one row in a part: of 6-bit codes 6, else pieces.
template <int Words>
struct Line {
  static constexpr int kPieces = Words / 4, kReads = ceil_div(Words, 4);

  Piece pieces[kPieces];
  Vec<u32, 2> rest[Words % 4 / 2];

  HK_DEVICE void pin() {
    for (auto& piece : pieces) pin_vector(piece.words);
    for (auto& words : rest) pin_vector(words);
  }

  // The words as the f8f6f4 instructions take them.
  HK_DEVICE Vec<u32, 8> words() const {
    const auto& first = pieces[0].words;
    if constexpr (Words == 4)
      return __builtin_shufflevector(first, first, 0, 1, 2, 3, -1, -1, -1, -1);
    else if constexpr (Words == 6)
      return __builtin_shufflevector(first, __builtin_shufflevector(rest[0], rest[0], 0, 1, -1, -1),
                                     0, 1, 2, 3, 4, 5, -1, -1);
    else
      return __builtin_shufflevector(first, pieces[1].words, 0, 1, 2, 3, 4, 5, 6, 7);
  }
};

// Parts of an operand that have scales of their own: whole rows; every 128 of the depth
// (block_scales.hpp); every 32 of the depth, on both sides or of the weights alone (mx_scales.hpp).
enum class Scales { kVectors, kBlocks, kMx, kMxWeights };

inline constexpr bool is_mx(Scales scales) {
  return scales == Scales::kMx || scales == Scales::kMxWeights;
}

template <class T>
inline constexpr int kElementBits = 8 * sizeof(T);
template <>
inline constexpr int kElementBits<E4m3> = 8;
template <>
inline constexpr int kElementBits<E2m3> = 6;
template <>
inline constexpr int kElementBits<E3m2> = 6;
template <>
inline constexpr int kElementBits<E2m1> = 4;

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
  static constexpr Scales kScales = Scales::kVectors;
  static constexpr bool kPackedA = false;

  HK_DEVICE static void wait_for_sums() {}
};

// The same 16-bit type on both sides.
template <class T>
struct SixteenBit : Waiting {
  using A = T;
  using W = T;
  static constexpr int kStep = 64, kPartDepth = 16, kWordsA = 4, kWordsW = 4;

  HK_DEVICE static void multiply(Block& sum, const Line<4>& a, const Line<4>& w) {
    sum = Mma<T>::multiply(bit_cast<Vec<T, 8>>(w.pieces[0].words),
                           bit_cast<Vec<T, 8>>(a.pieces[0].words), sum);
  }
};

// FP8 codes on both sides: 64 of a row at once, at twice the rate.
struct Fp8 {
  using A = E4m3;
  using W = E4m3;
  static constexpr int kStep = 128, kPartDepth = 64, kWordsA = 8, kWordsW = 8;
  static constexpr Scales kScales = Scales::kVectors;
  static constexpr bool kPackedA = false;

  HK_DEVICE static void multiply(Block& sum, const Line<8>& a, const Line<8>& w) {
    sum = arch::multiply_e4m3(w.words(), a.words(), sum);
  }

  // LLVM 22 takes these codes for FP4, which is done in half the passes, and waits for 12 states.
  HK_DEVICE static void wait_for_sums() { wait_for_any_sums(); }
};

struct Fp8Blocks : Fp8 {
  static constexpr Scales kScales = Scales::kBlocks;
};

// Codes of an MX format on each side, 64 of a row at once, packed in the order of the matrix unit.
// Codes of 4 and 6 bits alone have twice the rate of 8. The deeper the steps, the fewer the
// barriers: as deep as two of a large tile, or the rings of several waves, fit in LDS.
template <class W_, class A_, int Step>
struct Mx {
  using A = A_;
  using W = W_;
  static constexpr int kStep = Step, kPartDepth = 64, kWordsA = kElementBits<A>,
                       kWordsW = kElementBits<W>;
  static constexpr Scales kScales = Scales::kMx;
  static constexpr bool kPackedA = true;

  // `Part` is counted in the step's half of a scale word, or in all of it.
  template <int Part>
  HK_DEVICE static void multiply(Block& sum, const Line<kWordsA>& a, const Line<kWordsW>& w,
                                 u32 a_scales, u32 w_scales) {
    sum = arch::multiply_scaled<W, A, Part>(w.words(), a.words(), sum, w_scales, a_scales);
  }

  HK_DEVICE static void wait_for_sums() { wait_for_any_sums(); }
};

// FP8 codes as weights, widened to the 16-bit type of the activations, which has them all. They are
// packed so that a lane's 16 codes belong to the 8 neighbours of two of its pieces.
template <class T, Scales Kind = Scales::kVectors>
struct Widened : Waiting {
  static constexpr Scales kScales = Kind;
  using A = T;
  using W = E4m3;
  static constexpr int kStep = 128, kPartDepth = 32, kWordsA = 8, kWordsW = 4;

  HK_DEVICE static void multiply(Block& sum, const Line<8>& a, const Line<4>& w) {
    static_for<0, 2>([&](auto half) {
      Vec<u32, 4> wide;
      static_for<0, 4>([&](auto i) {
        wide[i.value] = arch::widen_e4m3<T, i % 2>(w.pieces[0].words[2 * half + i / 2]);
      });
      sum = Mma<T>::multiply(bit_cast<Vec<T, 8>>(wide), bit_cast<Vec<T, 8>>(a.pieces[half].words),
                             sum);
    });
  }
};

template <class T>
using WidenedBlocks = Widened<T, Scales::kBlocks>;

// Codes of an MX format as weights, packed as in `Mx`, times their scales as bf16, which has all of
// these values. A half of the wave has 32 neighbours of each row (half_rows.hpp).
template <class W_, int Step = 128>
struct MxWidened : Waiting {
  static constexpr Scales kScales = Scales::kMxWeights;
  using A = bf16;
  using W = W_;
  static constexpr int kStep = Step, kPartDepth = 64, kWordsA = 16, kWordsW = kElementBits<W>;

  template <int Part>
  HK_DEVICE static void multiply(Block& sum, const Line<kWordsA>& a, const Line<kWordsW>& w,
                                 u32 w_scales) {
    const auto wide = arch::widen_codes<W>(w.words(), arch::scale_of_code<Part>(w_scales));
    static_for<0, 4>([&](auto piece) {
      const Vec<u32, 4> words = {wide[4 * piece], wide[4 * piece + 1], wide[4 * piece + 2],
                                 wide[4 * piece + 3]};
      sum = Mma<bf16>::multiply(bit_cast<Vec<bf16, 8>>(words),
                                bit_cast<Vec<bf16, 8>>(a.pieces[piece].words), sum);
    });
  }
};

}  // namespace hk::gemm
