// Tables of kernels: what a source writes in one line declares a kernel for each entry of its
// lists.
#pragma once

// MACRO(bf16, ...) MACRO(f16, ...). This is the one place that says it: every kernel that exists
// for bf16 exists for fp16, with the same tile, the same facts and the same bar.
#define HK_FOR_16_BIT_TYPES(MACRO, ...) MACRO(bf16, __VA_ARGS__) MACRO(f16, __VA_ARGS__)

// MACRO(shared, a) MACRO(shared, b) ... for up to eight entries. `shared` may be a list in
// parentheses.
#define HK_FOR_EACH(MACRO, shared, ...) HK_EXPAND(HK_NEXT(MACRO, shared, __VA_ARGS__))
#define HK_NEXT(MACRO, shared, entry, ...) \
  MACRO(shared, entry) __VA_OPT__(HK_AGAIN HK_NOTHING()()(MACRO, shared, __VA_ARGS__))
#define HK_AGAIN() HK_NEXT
#define HK_NOTHING()
// Each pass over the text expands one more entry.
#define HK_EXPAND(...) HK_EXPAND_4(HK_EXPAND_4(__VA_ARGS__))
#define HK_EXPAND_4(...) HK_EXPAND_2(HK_EXPAND_2(__VA_ARGS__))
#define HK_EXPAND_2(...) HK_EXPAND_1(HK_EXPAND_1(__VA_ARGS__))
#define HK_EXPAND_1(...) __VA_ARGS__
