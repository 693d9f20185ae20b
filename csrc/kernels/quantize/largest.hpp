// The largest magnitude of many elements, by their bits: as integers NaN is above all numbers.
#pragma once

#include "pieces.hpp"

namespace hk::quantize {

// Magnitudes in a word: of a 16-bit type two, each of which has been compared with its like.
template <class T>
struct Largest {
  u32 bits = 0;

  HK_DEVICE void take(u32 other) {
    if constexpr (sizeof(T) == 4) {
      bits = __builtin_elementwise_max(bits, other);
    } else {
      using Halves = Vec<unsigned short, 2>;
      bits =
          bit_cast<u32>(__builtin_elementwise_max(bit_cast<Halves>(bits), bit_cast<Halves>(other)));
    }
  }
  HK_DEVICE void take(const Piece<T>& piece) {
    constexpr u32 kMagnitude = sizeof(T) == 4 ? 0x7fffffff : 0x7fff7fff;
    static_for<0, 4>([&](auto i) HK_INLINED { take(piece.words[i.value] & kMagnitude); });
  }

  // Over groups of 16, 32 or 64 lanes; each gets the result.
  template <int Lanes>
  HK_DEVICE void take_lanes() {
    static_for<0, 4>([&](auto i) HK_INLINED {
      constexpr int kRowRotate = 0x120, kBy = 8 >> i.value;
      take(u32(__builtin_amdgcn_update_dpp(0, i32(bits), kRowRotate + kBy, 0xf, 0xf, true)));
    });
    if constexpr (Lanes >= 32) {
      const auto rows = __builtin_amdgcn_permlane16_swap(bits, bits, false, false);
      bits = rows[0];
      take(rows[1]);
    }
    if constexpr (Lanes == 64) {
      u32 upper = bits;
      arch::swap_halves(bits, upper);
      take(upper);
    }
  }

  // Over the `Waves` of a workgroup, a divisor of 16; `lds`: a word for each.
  template <int Waves>
  HK_DEVICE void take_waves(Shared<u32> lds, int wave, Lane lane) {
    static_assert(16 % Waves == 0);
    if (lane.id == 0) lds[wave] = bits;
    synchronize();
    bits = lds[lane.id % Waves];
    take_lanes<16>();
  }

  HK_DEVICE f32 value() const {
    if constexpr (sizeof(T) == 4)
      return bit_cast<f32>(bits);
    else
      return f32(bit_cast<T>((unsigned short)__builtin_elementwise_max(bits & 0xffff, bits >> 16)));
  }
};

}  // namespace hk::quantize
