// Ranges of keys, and the arithmetic of cutting them.
#pragma once

#include <cstdint>

#include "common/inline.hpp"

namespace hk::cpu {

HK_INLINE constexpr int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
HK_INLINE constexpr int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
HK_INLINE int64_t ceil_div(int64_t x, int64_t unit) { return (x + unit - 1) / unit; }
HK_INLINE int64_t round_up(int64_t x, int64_t unit) { return ceil_div(x, unit) * unit; }

struct Range {
  int64_t begin, end;
  HK_INLINE bool empty() const { return begin >= end; }
  HK_INLINE int64_t size() const { return max(end - begin, 0); }
};
HK_INLINE Range clip(Range r, int64_t begin, int64_t end) {
  return {max(r.begin, begin), min(r.end, end)};
}

}  // namespace hk::cpu
