// Kernels of attention_prefill, in tables: one line of a source for each head size, number of rows
// and mask, with the cache forms that it exists for. fp16 follows from bf16 (hk/table.hpp).
//
//   ATTENTION_PREFILL(64, 128, Window, paged(55), tokens(55));
//
// is for heads of 64 channels, with workgroups of 128 query rows and the mask Window, over two
// forms of cache. The number of a form is a bar (hk::Bars): the least useful share of the steady
// loop, in percent.
#pragma once

#include "hk/kernel_info.hpp"
#include "hk/table.hpp"
#include "prefill.hpp"

namespace hk::attention {

// Facts and sizes that the launch must know (hk_backend/lab/toolchain/build.py).
template <class Shape, class Source, class Mask>
constexpr KernelInfo<AttentionFacts> info(AttentionFacts facts, i32 useful_percent) {
  facts.padded = Shape::kPadded;
  for (int i = 0; i < 16; ++i) {
    facts.keys[i] = Source::kName[i];
    facts.mask[i] = Mask::kName[i];
    if constexpr (Source::kWidens)
      facts.stored[i] = Source::Code::kName[i];
    else
      facts.stored[i] = facts.dtype[i];
  }
  KernelInfo<AttentionFacts> made = {Shape::kQueryRows,
                                     Shape::kTileKeys,
                                     Shape::kHeadSize,
                                     kLdsBytes<Shape, Source, Mask>,
                                     4 * Shape::kWaveRows * Shape::kWaveKeys * Shape::kHeadSize,
                                     {},
                                     "attention_prefill",
                                     facts,
                                     {Shape::kWavesPerSimd, useful_percent}};
  const char* grid = Mask::kPart      ? Mask::kGrouped ? "attention_part_grouped" : "attention_part"
                     : Mask::kGrouped ? "attention_prefill_grouped"
                                      : "attention_prefill";
  for (int i = 0; grid[i]; ++i) made.grid[i] = grid[i];
  return made;
}

// Two waves on a SIMD where three have too few registers.
template <class Shape>
struct TwoWaves : Shape {
  static constexpr int kWavesPerSimd = min(Shape::kWavesPerSimd, 2);
};

// Bent scores take registers that are not there beside a lane's own addresses.
template <class T, int HeadSize, int QueryRows, class Source, class Mask,
          class Wanted = Shape<arch::Current, T, HeadSize, QueryRows>>
using OneSize = Conditional<Mask::Logits::kBends && Source::kByLane, TwoWaves<Wanted>, Wanted>;
template <class T, int HeadSize, int QueryRows, class Source, class Mask>
using AllSizes = Padded<OneSize<T, HeadSize, QueryRows, Source, Mask>>;

}  // namespace hk::attention

// The usual rows of a workgroup.
#define ATTENTION_PREFILL(D, Rows, Mask, ...) \
  HK_FOR_EACH(ATTENTION_FORM, (OneSize, d##D, , D, Rows, Mask), __VA_ARGS__)
// Fewer rows than usual, for launches that would not fill the device: the kernel's name says how
// many.
#define ATTENTION_FEWER_ROWS(D, Rows, Mask, ...) \
  HK_FOR_EACH(ATTENTION_FORM, (OneSize, d##D, _r##Rows, D, Rows, Mask), __VA_ARGS__)
// The same for all head sizes up to D.
#define ATTENTION_PADDED(D, Rows, Mask, ...) \
  HK_FOR_EACH(ATTENTION_FORM, (AllSizes, up_to_d##D, , D, Rows, Mask), __VA_ARGS__)

// Cache forms: the part of a kernel's name, and the row source (hk/types/row_source.hpp).
#define ATTENTION_FORM_packed(bar) packed, PackedRows, bar
#define ATTENTION_FORM_paged(bar) paged, PagedRows, bar
#define ATTENTION_FORM_tokens(bar) tokens, TokenRows, bar
#define ATTENTION_FORM_any_pages(bar) any_pages, AnyPagedRows, bar
#define ATTENTION_FORM_split(bar) split, SplitPagedRows, bar
#define ATTENTION_FORM_paged_e4m3(bar) paged_e4m3, PagedCodes, bar
#define ATTENTION_FORM_tokens_e4m3(bar) tokens_e4m3, TokenCodes, bar
#define ATTENTION_FORM_any_pages_e4m3(bar) any_pages_e4m3, AnyPagedCodes, bar
#define ATTENTION_FORM_split_e4m3(bar) split_e4m3, SplitPagedCodes, bar

// Masks: the part of a kernel's name (mask.hpp).
#define ATTENTION_MASK_All
#define ATTENTION_MASK_Window _window
#define ATTENTION_MASK_Capped _capped
#define ATTENTION_MASK_Biased _alibi
#define ATTENTION_MASK_Part _part
#define ATTENTION_MASK_WindowPart _window_part

#define ATTENTION_FORM(line, entry) \
  HK_FOR_16_BIT_TYPES(ATTENTION_TYPE, ATTENTION_FORM_##entry, ATTENTION_LINE line)
#define ATTENTION_LINE(...) __VA_ARGS__
#define ATTENTION_TYPE(...) ATTENTION_MASK(__VA_ARGS__)
#define ATTENTION_MASK(T, form, Source, bar, Sizes, size, rows, D, Rows, Mask) \
  ATTENTION_NAME(T, size, form, ATTENTION_MASK_##Mask, rows, Sizes, D, Rows, Source, Mask, bar)
#define ATTENTION_NAME(...) ATTENTION_KERNEL(__VA_ARGS__)
#define ATTENTION_KERNEL(T, size, form, mask, rows, ...) \
  ATTENTION_DECLARE(T##_##size##_##form##mask##rows, T, __VA_ARGS__)

#define ATTENTION_DECLARE(name, T, Sizes, D, Rows, Source, Mask, bar)                         \
  using name##_shape = hk::attention::Sizes<hk::T, D, Rows, hk::Source, hk::attention::Mask>; \
  HK_KERNEL(name##_shape::kThreads, name##_shape::kWavesPerSimd)                              \
  attention_prefill_##name(hk::AttentionPrefillArgs args) {                                   \
    hk::attention::attention_prefill<name##_shape, hk::Source, hk::attention::Mask>(args);    \
  }                                                                                           \
  HK_KERNEL_INFO(attention_prefill_##name,                                                    \
                 hk::attention::info<name##_shape, hk::Source, hk::attention::Mask>(          \
                     {#T, D, {}, {}, {}, false}, bar));
