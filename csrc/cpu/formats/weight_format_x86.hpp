// Weights of fewer than 16 bits on AVX2 and AVX-512. Each is stored in the order that widens with
// the fewest instructions.
//
// Eight and six bits go through float16: the code's fields move to their places in float16. The
// result is off by the power of two between the biases, which is multiplied in later. The
// conversion from float16 takes denormals at full speed; a float32 denormal would stop the multiply
// for a hundred clocks. Four bits are looked up.
#pragma once

#include "formats/weight_format_wide.hpp"

namespace hk::cpu::HK_ISA {

typedef uint8_t bytes __attribute__((vector_size(VL * 4)));
typedef uint16_t words __attribute__((vector_size(VL * 4)));

HK_INLINE bytes load_bytes(const uint8_t* from) {
  bytes x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}
// Loads 32 bits from memory into every lane.
HK_INLINE ivec splat_lane(const void* from) {
  int32_t lane;
  std::memcpy(&lane, from, sizeof(lane));
  return ivec{} + lane;
}
#if defined(__AVX512F__)
typedef __m512i reg;
#define HK_X86(operation) _mm512_##operation
#define HK_X86_TABLE(...) _mm512_broadcast_i32x4(_mm_setr_epi8(__VA_ARGS__))
#else
typedef __m256i reg;
#define HK_X86(operation) _mm256_##operation
#define HK_X86_TABLE(...) _mm256_broadcastsi128_si256(_mm_setr_epi8(__VA_ARGS__))
#endif
// Joins bytes to words low | high << 8: within each 16 bytes of a register, the first (last) eight.
// Word i comes from byte i / 8 * 16 + i % 8 (+ 8).
HK_INLINE words join_first(bytes low, bytes high) {
  return reinterpret_cast<words>(
      HK_X86(unpacklo_epi8)(reinterpret_cast<reg>(low), reinterpret_cast<reg>(high)));
}
HK_INLINE words join_last(bytes low, bytes high) {
  return reinterpret_cast<words>(
      HK_X86(unpackhi_epi8)(reinterpret_cast<reg>(low), reinterpret_cast<reg>(high)));
}
constexpr int64_t joined_byte(int64_t word) { return word / 8 * 16 + word % 8; }
// Looks up bytes in a table of sixteen; a negative index gives zero.
HK_INLINE bytes look_up(reg table, bytes index) {
  return reinterpret_cast<bytes>(HK_X86(shuffle_epi8)(table, reinterpret_cast<reg>(index)));
}

// Converts float16 to float32; the first half of `x` becomes w[0]. The values go through memory,
// since converting from a register takes another instruction on the port that extracts halves.
HK_INLINE void widen_halves(words x, vec (&w)[NV]) {
  asm("" : "+m"(x));
  const auto* halves = reinterpret_cast<const uint16_t*>(&x);
  for (int v = 0; v < NV; ++v) w[v] = F16Weight::widen_run(halves + v * VL);
}

// Factor from a small float's fields, read as float16, to its value.
template <class Small>
constexpr float kHalfFactor = float(1 << (15 - Small::bias));

// Weights of eight bits. A byte holds the upper byte of the float16, s0eeeemm, with the mantissa's
// last bit in place of the 0. A register holds two elements along K.
template <class Small, bool mx>
struct ByteWeight : WeightLayout<uint8_t, Small, 8, mx> {
  static_assert(Small::E == 4 && Small::M == 3);
  static constexpr float factor = kHalfFactor<Small>;

  static void pack_group(const uint8_t* codes, uint8_t* out) {
    for (int64_t k = 0; k < kGroupK; ++k)
      for (int64_t n = 0; n < NR; ++n) {
        const uint32_t code = codes[n * kSlabK + k];
        out[k / 2 * 2 * NR + k % 2 * 8 + joined_byte(n)] =
            uint8_t((code & 0x80) | (code & 1) << 6 | (code >> 1 & 0x3f));
      }
  }
  template <class F>
  static HK_INLINE void expand_group(const uint8_t* codes, F f) {
#pragma GCC unroll 4
    for (int k = 0; k < kGroupK; k += 2, codes += 2 * NR) {
      const bytes stored = load_bytes(codes);
      const bytes high = stored & (bytes{} + 0xbf), low = (stored + stored) & (bytes{} + 0x80);
      vec w[NV];
      widen_halves(join_first(low, high), w);
      f(k, w);
      widen_halves(join_last(low, high), w);
      f(k + 1, w);
    }
  }
};

// Weights of six bits. Three words hold a column's eight codes. Each word has two whole codes from
// the top. The last four bits of the first two words each begin a code; the third word's complete
// both.
template <class Small>
struct SixBitWeight : WeightLayout<uint8_t, Small, 6, true> {
  static constexpr float factor = kHalfFactor<Small>;

  static void pack_group(const uint8_t* codes, uint8_t* out) {
    for (int64_t n = 0; n < NR; ++n) {
      const uint8_t* c = codes + n * kSlabK;
      const int rest[3] = {c[6] >> 2, c[7] >> 2, (c[6] & 3) << 2 | (c[7] & 3)};
      for (int64_t i = 0; i < 3; ++i) {
        const auto word = uint16_t(c[2 * i] << 10 | c[2 * i + 1] << 4 | rest[i]);
        std::memcpy(out + 2 * (i * NR + n), &word, 2);
      }
    }
  }
  // Converts words with a code in the six highest bits, and anything below, to float16.
  static HK_INLINE words to_half(words top) {
    typedef int16_t signed_words __attribute__((vector_size(VL * 4)));
    constexpr int size = ((1 << (Small::E + Small::M)) - 1) << (10 - Small::M);
    const auto spread = reinterpret_cast<signed_words>(top) >> (5 - Small::E);
    return reinterpret_cast<words>(spread) & (words{} + uint16_t(0x8000 | size));
  }
  template <class F>
  static HK_INLINE void expand_group(const uint8_t* codes, F f) {
    words word[3];
    for (int i = 0; i < 3; ++i) word[i] = reinterpret_cast<words>(load_bytes(codes + 2 * NR * i));
    vec w[NV];
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      widen_halves(to_half(word[i]), w);
      f(2 * i, w);
      widen_halves(to_half(word[i] << 6), w);
      f(2 * i + 1, w);
    }
    const words last_bits = words{} + 0x0c00;
    widen_halves(to_half(word[0] << 12 | (word[2] << 8 & last_bits)), w);
    f(6, w);
    widen_halves(to_half(word[1] << 12 | (word[2] << 10 & last_bits)), w);
    f(7, w);
  }

  static constexpr bool has_integers = true;
  // Converts E2M3 codes in bytes to `unit` times their values, plus `most`. Codes below 16 are the
  // number itself; the others are looked up.
  static HK_INLINE bytes to_whole(words pair) {
    const reg twice_or_four_times =
        HK_X86_TABLE(16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 44, 48, 52, 56, 60);
    const auto code = reinterpret_cast<bytes>(pair);
    const bytes size = code & (bytes{} + 0x1f);
    const bytes large = look_up(twice_or_four_times, size - (bytes{} + 16));
    const bytes whole = size > large ? size : large, zero = bytes{} + uint8_t(Small::most());
    return (code & (bytes{} + 0x20)) == bytes{} ? zero + whole : zero - whole;
  }
  static HK_INLINE words two_of(words word) {
    return word >> 10 | (word << 4 & (words{} + 0x3f00));
  }
  template <class F>
  static HK_INLINE void join_pairs(int64_t quad, words low, words high, F f) {
    typedef uint16_t half __attribute__((vector_size(VL * 2)));
    const bytes first = to_whole(low), second = to_whole(high);
    bytes w[NV];
    for (int v = 0; v < NV; ++v) {
      half a, b;
      std::memcpy(&a, reinterpret_cast<const char*>(&first) + v * sizeof(half), sizeof(half));
      std::memcpy(&b, reinterpret_cast<const char*>(&second) + v * sizeof(half), sizeof(half));
      w[v] = reinterpret_cast<bytes>(__builtin_convertvector(a, ivec) |
                                     __builtin_convertvector(b, ivec) << 16);
    }
    f(quad, w);
  }
  // Expands codes to whole numbers in bytes, `unit` times the values plus `most`. Calls f(k / 4,
  // w): the 32-bit lanes of w are columns, their bytes four neighbours along K.
  template <class F>
  static HK_INLINE void expand_bytes(const uint8_t* codes, F f) {
    static_assert(Small::fits_a_byte());
    words word[3];
    for (int i = 0; i < 3; ++i) word[i] = reinterpret_cast<words>(load_bytes(codes + 2 * NR * i));
    const words upper = words{} + 0x3c, lower = words{} + 0x03;
    const words sixth = (word[0] << 2 & upper) | (word[2] >> 2 & lower);
    const words seventh = (word[1] << 2 & upper) | (word[2] & lower);
    join_pairs(0, two_of(word[0]), two_of(word[1]), f);
    join_pairs(1, two_of(word[2]), sixth | seventh << 8, f);
  }
};

// Weights of four bits, whose two bfloat16 bytes are both looked up. A register holds four elements
// along K, two in the lower and two in the upper halves of its bytes. Joined words are pairs along
// K.
struct NibbleWeight : WeightLayout<uint8_t, E2M1, 4, true> {
  static constexpr float factor = 1.0f;

  static void pack_group(const uint8_t* codes, uint8_t* out) {
    for (int64_t k = 0; k < kGroupK; ++k)
      for (int64_t n = 0; n < NR; ++n) {
        const int64_t byte = k / 4 * 2 * NR + n / VL * 8 + joined_byte(n % VL * 2 + k % 2);
        out[byte] |= uint8_t(codes[n * kSlabK + k] << k / 2 % 2 * 4);
      }
  }
  template <class F>
  static HK_INLINE void expand_pair(int k, bytes index, F f) {
    // bytes of the bfloat16 values 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives
    const reg low_bytes =
        HK_X86_TABLE(0, 0, -128, -64, 0, 64, -128, -64, 0, 0, -128, -64, 0, 64, -128, -64);
    const reg high_bytes =
        HK_X86_TABLE(0, 63, 63, 63, 64, 64, 64, 64, -128, -65, -65, -65, -64, -64, -64, -64);
    const bytes low = look_up(low_bytes, index), high = look_up(high_bytes, index);
    const ivec pairs[NV] = {reinterpret_cast<ivec>(join_first(low, high)),
                            reinterpret_cast<ivec>(join_last(low, high))};
    vec even[NV], odd[NV];
    for (int v = 0; v < NV; ++v) {
      even[v] = widen_lower(pairs[v]);
      odd[v] = widen_upper(pairs[v]);
    }
    f(k, even);
    f(k + 1, odd);
  }
  template <class F>
  static HK_INLINE void expand_group(const uint8_t* codes, F f) {
#pragma GCC unroll 2
    for (int k = 0; k < kGroupK; k += 4, codes += 2 * NR) {
      const bytes stored = load_bytes(codes);
      const auto shifted = reinterpret_cast<bytes>(reinterpret_cast<words>(stored) >> 4);
      expand_pair(k, stored & (bytes{} + 0x0f), f);
      expand_pair(k + 2, shifted & (bytes{} + 0x0f), f);
    }
  }

  // Expands codes to whole numbers, `unit` times the values plus `most`, for sums of products in
  // integers. Calls f(k / 2, w): the 16-bit lanes of w are columns, their bytes neighbours along K.
  static constexpr bool has_integers = true;
  using sums = words;
  template <class F>
  static HK_INLINE void expand_integers(const uint8_t* codes, F f) {
    const reg values = HK_X86_TABLE(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
#pragma GCC unroll 2
    for (int k = 0; k < kGroupK; k += 4, codes += 2 * NR) {
      const bytes stored = load_bytes(codes);
      const auto shifted = reinterpret_cast<bytes>(reinterpret_cast<words>(stored) >> 4);
      f(k / 2, look_up(values, stored & (bytes{} + 0x0f)));
      f(k / 2 + 1, look_up(values, shifted & (bytes{} + 0x0f)));
    }
  }
  // Expands codes to the same whole numbers in 32-bit lanes of four neighbours: calls f(k / 4, w).
  template <class F>
  static HK_INLINE void expand_bytes(const uint8_t* codes, F f) {
    bytes first;
    expand_integers(codes, [&](int64_t pair, bytes w) HK_INLINED {
      if (pair % 2 == 0) {
        first = w;
      } else {
        const auto low = reinterpret_cast<reg>(first), high = reinterpret_cast<reg>(w);
        const bytes quads[NV] = {reinterpret_cast<bytes>(HK_X86(unpacklo_epi16)(low, high)),
                                 reinterpret_cast<bytes>(HK_X86(unpackhi_epi16)(low, high))};
        f(pair / 2, quads);
      }
    });
  }
  // Copies two bytes, which memory holds twice, to every 16-bit lane.
  static HK_INLINE words splat_pair(const void* twice) {
    return reinterpret_cast<words>(splat_lane(twice));
  }
  // Computes w[0] * x[0] + w[1] * x[1] in each column, for signed x.
  static HK_INLINE words multiply_pairs(bytes w, const int8_t (&x)[4]) {
    return reinterpret_cast<words>(
        HK_X86(maddubs_epi16)(reinterpret_cast<reg>(w), reinterpret_cast<reg>(splat_pair(x))));
  }
  // Converts sums in 16-bit lanes, to which 2^15 was added, to float32: they become the last places
  // of 2^23.
  static HK_INLINE void widen_sums(words sums, vec (&w)[NV]) {
    const auto exponent = reinterpret_cast<reg>(words{} + 0x4b00);
    const auto lanes = reinterpret_cast<reg>(sums);
    w[0] = reinterpret_cast<vec>(HK_X86(unpacklo_epi16)(lanes, exponent));
    w[1] = reinterpret_cast<vec>(HK_X86(unpackhi_epi16)(lanes, exponent));
    for (vec& x : w) x -= splat(float((1 << 23) + (1 << 15)));
  }
};

// Adds w[0] * x[0] + w[1] * x[1] to the sum in each 16-bit lane; w is unsigned.
HK_INLINE void add_products(ivec& sums, ivec w, ivec x) {
  const auto products = HK_X86(maddubs_epi16)(reinterpret_cast<reg>(w), reinterpret_cast<reg>(x));
  // Assembly, since the compiler would keep all products to add them as a tree.
  asm("vpaddw %1, %0, %0" : "+v"(sums) : "v"(products));
}
// Adds w[0] * x[0] + w[1] * x[1], of signed words, to the sum in each 32-bit lane. AVX-512 uses
// assembly, because no other code here may be compiled for a processor with VNNI.
HK_INLINE void add_dot_products(ivec& sums, ivec w, const int16_t* x) {
#if defined(__AVX512F__)
  typedef int16_t two[2];
  asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(w), "m"(*reinterpret_cast<const two*>(x)));
#else
  const auto everywhere = reinterpret_cast<reg>(splat_lane(x));
  const auto products = HK_X86(madd_epi16)(reinterpret_cast<reg>(w), everywhere);
  asm("vpaddd %1, %0, %0" : "+v"(sums) : "v"(products));  // the compiler would add them as a tree
#endif
}
#if defined(__AVX512F__)
// Adds w[0] * x[0] + ... + w[3] * x[3], of bytes, to the sum in each 32-bit lane; w is unsigned.
HK_INLINE void add_dot_products(ivec& sums, ivec w, const int8_t* x) {
  typedef int8_t four[4];
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(w), "m"(*reinterpret_cast<const four*>(x)));
}
#endif
// Adds two neighbouring sums in 16-bit lanes to one in the 32 bits of both.
HK_INLINE ivec join_sums(ivec sums) {
  const auto ones = reinterpret_cast<reg>(words{} + 1);
  return reinterpret_cast<ivec>(HK_X86(madd_epi16)(reinterpret_cast<reg>(sums), ones));
}

#undef HK_X86
#undef HK_X86_TABLE

}  // namespace hk::cpu::HK_ISA
