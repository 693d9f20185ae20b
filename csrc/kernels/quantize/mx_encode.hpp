// A block becomes codes and the e8m0 code of its scale (hk_backend/reference/linear.py,
// quantize_mx).
#pragma once

#include "hk/types/mx_codes.hpp"
#include "mx_block.hpp"

namespace hk::quantize {

// Facts of a format's elements: those of hk_backend/terms/weight_format.py, and how they are made.
template <class Code>
struct Element;

struct Element4Bits {
  static constexpr int kBits = 4;

  HK_DEVICE static Vec<u32, 4> encode(const Block& block, u32 scale) {
    Vec<u32, 4> words;
    static_for<0, 4>([&](auto word) HK_INLINED {
      u32 codes = 0;
      static_for<0, 4>([&](auto byte) HK_INLINED {
        constexpr int kPair = 4 * word + byte;
        codes = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(codes, block.even[kPair], block.odd[kPair],
                                                         bit_cast<f32>(scale), byte.value);
      });
      words[word.value] = codes;
    });
    return words;
  }
};
template <>
struct Element<E2m1> : Element4Bits {
  static constexpr int kMantissaBits = 1, kMaxExponent = 2;
};

// The conversion to 6 bits is assembly: its codes must not overlap a source, which clang 22 does not
// know (findings/codes_over_their_sources.sh). It takes code 2i from the first source and code
// 2i + 1 from the second.
template <>
struct Element<E2m3> {
  static constexpr int kBits = 6, kMantissaBits = 3, kMaxExponent = 2;

  HK_DEVICE static Vec<u32, 6> encode(const Block& block, u32 scale) {
    Vec<u32, 6> words;
    asm("v_cvt_scalef32_2xpk16_fp6_f32 %0, %1, %2, %3"
        : "=&v"(words)
        : "v"(block.even), "v"(block.odd), "v"(scale));
    return words;
  }
};
template <>
struct Element<E3m2> {
  static constexpr int kBits = 6, kMantissaBits = 2, kMaxExponent = 4;

  HK_DEVICE static Vec<u32, 6> encode(const Block& block, u32 scale) {
    Vec<u32, 6> words;
    asm("v_cvt_scalef32_2xpk16_bf6_f32 %0, %1, %2, %3"
        : "=&v"(words)
        : "v"(block.even), "v"(block.odd), "v"(scale));
    return words;
  }
};

// The conversion to FP8 saturates only in a mode that this kernel is not in.
template <>
struct Element<E4m3> {
  static constexpr int kBits = 8, kMantissaBits = 3, kMaxExponent = 8;

  HK_DEVICE static Vec<u32, 8> encode(const Block& block, u32 scale) {
    const f32 largest = bit_cast<f32>(scale + bit_cast<u32>(448.0f) - bit_cast<u32>(1.0f));
    const auto kept = [&](f32 x)
                          HK_INLINED { return __builtin_amdgcn_fmed3f(x, -largest, largest); };
    Vec<u32, 8> words;
    static_for<0, 8>([&](auto word) HK_INLINED {
      using Halves = Vec<i16, 2>;
      Halves codes = {0, 0};
      static_for<0, 2>([&](auto half) HK_INLINED {
        constexpr int kPair = 2 * word + half;
        codes = __builtin_amdgcn_cvt_scalef32_pk_fp8_f32(codes, kept(block.even[kPair]),
                                                         kept(block.odd[kPair]),
                                                         bit_cast<f32>(scale), half.value != 0);
      });
      words[word.value] = bit_cast<u32>(codes);
    });
    return words;
  }
};

// The bits of the largest magnitude; of NaN, if any is NaN.
HK_DEVICE u32 largest_bits(const Block& block) {
  f32 largest = 0.0f;
  static_for<0, kBlock / 2>([&](auto i) HK_INLINED {
    largest = arch::max3(__builtin_fabsf(block.even[i.value]), __builtin_fabsf(block.odd[i.value]),
                         largest);
  });
  return bit_cast<u32>(largest) & 0x7fffffff;
}

template <class Code>
struct Encoded {
  using Words = Vec<u32, Element<Code>::kBits>;
  Words codes;
  u32 scale;

  HK_DEVICE Encoded(const Block& block, bool round_scale_even) {
    using Facts = Element<Code>;
    constexpr u32 kInfinity = 0x7f800000, kNan = 0xff;
    const u32 largest = largest_bits(block);
    const u32 rounded = largest + (round_scale_even ? 1u << (22 - Facts::kMantissaBits) : 0u);
    const i32 exponent = min(i32(rounded >> 23), 254);  // stays within float32's last exponent
    const u32 power = max(exponent - Facts::kMaxExponent, 0);
    const bool broken = largest >= kInfinity;
    // the conversion may make anything of NaN
    codes = Facts::encode(block, power << 23) & Words(broken ? 0u : ~0u);
    scale = broken ? kNan : power;
  }
};

}  // namespace hk::quantize
