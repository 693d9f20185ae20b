// Packed weights: the order of each format's codes in memory, and their expansion to float32 in
// registers.
//
//   panel   NR columns of D (rows of the weight), all of K: one operand of a register tile
//   slab    kSlabK = 32 elements along K of a panel, contiguous; mx formats begin it with NR
//           scale codes, one per column
//   group   kGroupK = 8 elements along K, the unit of expansion: a few whole registers
//
// A format W offers
//   code            type in which pack_slab gets an element: its bits, one element per code
//   small           the SmallFloat of the elements, or void
//   slab_bytes, mx  as above
//   factor          power of two that expanded values still have to be multiplied by
//   expand_group(codes, f)   calls f(k, w) for k = 0 to 7 with the columns' float32 values / factor
// and this file, for any W, pack_slab, for_each_k and column_scales.
#pragma once

#include "linear/linear_args.hpp"
#include "formats/weight_format_wide.hpp"
#if defined(__F16C__)
#include "formats/weight_format_x86.hpp"
#else
#include "formats/weight_format_portable.hpp"
#endif

namespace hk::cpu::HK_ISA {

constexpr int kGroupRows = MR < 8 ? MR : 8;  // rows whose sums fit in registers beside an expansion
constexpr int kSkinnyRows = MR < 6 ? MR : 16;

// Packs one slab from `codes` [NR][kSlabK] and, for mx formats, `scales` [NR].
template <class W>
void pack_slab(const typename W::code* codes, const uint8_t* scales, uint8_t* out) {
  std::memset(out, 0, W::slab_bytes);
  if (W::mx) std::memcpy(out, scales, NR);
  out += W::scale_bytes;
  for (int64_t k = 0; k < kSlabK; k += kGroupK, out += W::group_bytes)
    W::pack_group(codes + k, out);
}

// Calls f(k, w) for k = 0 to 31; w[v][i] is column v * VL + i.
template <class W, class F>
HK_INLINE void for_each_k(const uint8_t* slab, F f) {
  const uint8_t* codes = slab + W::scale_bytes;
  for (int64_t base = 0; base < kSlabK; base += kGroupK, codes += W::group_bytes)
    W::expand_group(codes, [&](int64_t k, const vec(&w)[NV]) HK_INLINED { f(base + k, w); });
}

// Loads neighbouring bytes as the lanes of a register; the compiler would load them one by one.
HK_INLINE ivec load_lanes(const uint8_t* from) {
#if defined(__AVX512F__)
  const auto codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return reinterpret_cast<ivec>(_mm512_cvtepu8_epi32(codes));
#elif defined(__AVX2__)
  const auto codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return reinterpret_cast<ivec>(_mm256_cvtepu8_epi32(codes));
#else
  ivec lanes;
  for (int i = 0; i < VL; ++i) lanes[i] = from[i];
  return lanes;
#endif
}

// Loads the scales of a slab's columns, 2^(code - 127); code 0 is a float32 denormal.
template <class W>
HK_INLINE void column_scales(const uint8_t* slab, vec (&scale)[NV]) {
  for (int v = 0; v < NV; ++v) {
    const ivec bits = load_lanes(slab + v * VL) << 23, least = ivec{} + 0x00400000;
    scale[v] = reinterpret_cast<vec>(bits > least ? bits : least);
  }
}

// Calls `f` with the type of a format.
template <class F>
HK_INLINE void with_weight_format(Format format, F f) {
  switch (format) {
    case Format::f32: return f(F32Weight{});
    case Format::f16: return f(F16Weight{});
    case Format::bf16: return f(BF16Weight{});
    case Format::f8e4m3fn: return f(ByteWeight<E4M3FN, false>{});
    case Format::f8e4m3fnuz: return f(ByteWeight<E4M3FNUZ, false>{});
    case Format::mx8: return f(ByteWeight<E4M3FN, true>{});
    case Format::mx6e2m3: return f(SixBitWeight<E2M3>{});
    case Format::mx6e3m2: return f(SixBitWeight<E3M2>{});
    case Format::mx4: return f(NibbleWeight{});
  }
}

}  // namespace hk::cpu::HK_ISA
