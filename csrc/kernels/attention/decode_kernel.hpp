// Kernels of attention_decode, in tables: one line of a source for each head size, number of
// rows and mask, with the cache forms that it exists for (kernel.hpp). fp16 follows from bf16.
//
//   ATTENTION_DECODE(64, 128, Window, paged, tokens);
#pragma once

#include "biased_rows.hpp"
#include "decode.hpp"
#include "kernel.hpp"

namespace hk::attention {

template <class T, int HeadSize, int QueryRows>
using OneDecodeSize = DecodeShape<arch::Current, T, HeadSize, QueryRows>;
template <class T, int HeadSize, int QueryRows>
using AllDecodeSizes = Padded<OneDecodeSize<T, HeadSize, QueryRows>>;

// Waves that a SIMD holds, as many as registers allow: one computes while another begins a request.
// Codes of d=64 leave registers for a third, which widens while two wait, unless each lane looks rows up.
template <class Shape, class Source>
constexpr int decode_waves_per_simd() {
  constexpr bool kSmall = Shape::kHeadSize == 64 && Shape::kQueryRows == 64;
  if (Shape::kPadded || Shape::kHeadSize == 256) return 1;
  return kSmall && Source::kWidens && Source::kScalar ? 3 : 2;
}

template <class Shape, class Source, class Mask>
constexpr KernelInfo<AttentionFacts> decode_info(AttentionFacts facts) {
  KernelInfo<AttentionFacts> made = info<Shape, Source, typename Mask::Whole>(facts, 0);
  const char name[] = "attention_decode";
  for (int i = 0; i < 32; ++i) made.grid[i] = made.operator_name[i] = i < 16 ? name[i] : 0;
  for (int i = 0; i < 16; ++i) made.facts.mask[i] = Mask::kName[i];
  made.bars.waves_per_simd = decode_waves_per_simd<Shape, Source>();
  return made;
}

}  // namespace hk::attention

#define ATTENTION_DECODE(D, Rows, Mask, ...) \
  HK_FOR_EACH(ATTENTION_DECODE_FORM, (OneDecodeSize, d##D, D, Rows, Mask), __VA_ARGS__)
// The same for all head sizes up to D.
#define ATTENTION_DECODE_PADDED(D, Rows, Mask, ...) \
  HK_FOR_EACH(ATTENTION_DECODE_FORM, (AllDecodeSizes, up_to_d##D, D, Rows, Mask), __VA_ARGS__)

#define ATTENTION_DECODE_FORM(line, form) \
  HK_FOR_16_BIT_TYPES(ATTENTION_DECODE_TYPE, form, ATTENTION_FORM_##form(0), ATTENTION_LINE line)
#define ATTENTION_DECODE_TYPE(...) ATTENTION_DECODE_NAME(__VA_ARGS__)
#define ATTENTION_DECODE_NAME(T, form, name, Source, bar, Sizes, size, D, Rows, Mask) \
  ATTENTION_DECODE_MASKED(T, size, name, ATTENTION_DECODE_MASK_##Mask, Rows, Sizes, D, Source, Mask)
#define ATTENTION_DECODE_MASKED(...) ATTENTION_DECODE_JOINED(__VA_ARGS__)
#define ATTENTION_DECODE_JOINED(T, size, name, mask, Rows, ...) \
  ATTENTION_DECODE_KERNEL(T##_##size##_##name##mask##_r##Rows, T, Rows, __VA_ARGS__)

// Masks: the part of a kernel's name.
#define ATTENTION_DECODE_MASK_Window
#define ATTENTION_DECODE_MASK_Capped _capped
#define ATTENTION_DECODE_MASK_Biased _alibi

#define ATTENTION_DECODE_KERNEL(name, T, Rows, Sizes, D, Source, Mask)                            \
  using decode_##name##_shape = hk::attention::Sizes<hk::T, D, Rows>;                             \
  HK_KERNEL(decode_##name##_shape::kThreads,                                                      \
            (hk::attention::decode_waves_per_simd<decode_##name##_shape, hk::Source>()))          \
  attention_decode_##name(hk::AttentionDecodeArgs) {                                              \
    hk::attention::attention_decode<decode_##name##_shape, hk::Source,                            \
                                    hk::attention::Decode##Mask>();                               \
  }                                                                                               \
  HK_KERNEL_INFO(                                                                                 \
      attention_decode_##name,                                                                    \
      hk::attention::decode_info<decode_##name##_shape, hk::Source, hk::attention::Decode##Mask>( \
          {#T, D, {}, {}, {}, false}));
