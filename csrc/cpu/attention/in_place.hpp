// The two products of attention of a few rows, with keys and values read where they lie.
//
//   form      keys                                     values
//   rows      a key's channels are neighbours          a key's channels are neighbours
//   columns   16 keys of a channel are neighbours
//   pairs     16 keys x 2 channels are neighbours      2 keys x 16 channels are neighbours
//
// Keys in columns and pairs meet a broadcast element of Q, so a register has scores of VL keys.
// Keys in rows meet registers of Q, and a register's lanes are summed for each score. Values meet a
// broadcast weight. Everything is widened to float32 in registers.
//
// A run of keys that are neighbours never crosses a page. Scores of keys past the last one are
// computed, as the page has them, and hidden by the caller. Values of hidden keys are never used.
#pragma once

#include <type_traits>

#include "attention/item_buffers.hpp"
#include "common/amx_gemm.hpp"

namespace hk::cpu::HK_ISA {

enum class Form { none, rows, columns, pairs };

constexpr int64_t kFewRows = 16;  // most rows of an item that leave keys and values in place
constexpr int64_t kRunKeys = 16;  // neighbouring keys in columns and pairs
alignas(64) constexpr float kKeep[kFewRows] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

// Form of a call's keys or values; none if no kernel reads them in place.
inline Form form_of_keys(const AttentionArgs& args, const CacheView& view) {
  const bool whole = view.channel_split >= args.head_size, pages = args.block_size % kRunKeys == 0;
  const bool unsplit = !args.paged || view.token_split >= args.block_size;
  if (whole && unsplit && view.channel_inner == 1 && args.head_size % VL == 0) return Form::rows;
  if (!args.paged || !pages) return Form::none;
  if (whole && unsplit && view.token_inner == 1) return Form::columns;
  const bool pairs = view.channel_split == 2 && view.channel_inner == 1 && view.token_inner == 2 &&
                     view.channel_outer == 2 * kRunKeys && view.token_split == kRunKeys;
  return pairs && args.kv_dtype == DType::bf16 ? Form::pairs : Form::none;
}
inline Form form_of_values(const AttentionArgs& args, const CacheView& view) {
  if (args.value_size % kRunKeys) return Form::none;
  const bool unsplit = !args.paged || view.token_split >= args.block_size;
  if (view.channel_split >= args.value_size && unsplit && view.channel_inner == 1)
    return Form::rows;
  const bool pairs = view.token_split == 2 && view.token_inner == 1 && view.channel_inner == 2 &&
                     view.channel_split == kRunKeys && view.token_outer == 2 * kRunKeys;
  return pairs && args.paged && args.kv_dtype == DType::bf16 ? Form::pairs : Form::none;
}

// Writes the offset of every `run`-th key from `first` on, a multiple of `run` in its page, and
// `apart` elements from a run to the next in a page.
template <int64_t run>
HK_INLINE void run_offsets(const AttentionArgs& args, const CacheView& view, int64_t request,
                           int64_t kv_head, Range keys, int64_t apart, int64_t* offsets) {
  const int64_t head = kv_head * view.head_stride;
  if (!args.paged) {
    const int64_t start = (args.key_start_loc ? args.key_start_loc : args.query_start_loc)[request];
    for (int64_t k = keys.begin; k < keys.end; k += run)
      *offsets++ = head + (start + k) * view.token_inner;
    return;
  }
  const int32_t* blocks = args.block_table + request * args.block_table_stride;
  int64_t block = keys.begin / args.block_size, in_block = keys.begin % args.block_size;
  for (int64_t key = keys.begin; key < keys.end; ++block, in_block = 0) {
    const int64_t base = head + blocks[block] * view.block_stride + in_block / run * apart;
    const int64_t runs = ceil_div(min(keys.end - key, args.block_size - in_block), run);
    for (int64_t i = 0; i < runs; ++i) offsets[i] = base + i * apart;
    offsets += runs;
    key += runs * run;
  }
}

// Calls f(first, number) for up to four rows at a time, whose number is a constant.
template <class F>
HK_INLINE void by_four(int64_t rows, F f) {
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) f(row, std::integral_constant<int, 4>{});
  if (rows - row == 1) return f(row, std::integral_constant<int, 1>{});
  if (rows - row == 2) return f(row, std::integral_constant<int, 2>{});
  if (rows - row == 3) return f(row, std::integral_constant<int, 3>{});
}

template <class T, Form keys, Form values>
struct InPlace {
  using operand = float;
  using element = typename T::type;
  static constexpr int64_t rows = 4, block_rows = kFewRows, key_unit = 1;
  static constexpr bool kPacks = false, kScalesQuery = true;
  static constexpr int64_t kKeyRun = keys == Form::rows ? 1 : kRunKeys;
  static constexpr int64_t kValueRun = values == Form::pairs ? 2 : 1;

  // Elements from a run of keys or values to the next one in a page.
  static int64_t key_apart(const CacheView& view) {
    return keys == Form::pairs ? view.token_outer : view.token_inner * kKeyRun;
  }
  static int64_t value_apart(const CacheView& view) {
    return values == Form::pairs ? view.token_outer : view.token_inner;
  }

  // S of `rows` rows of Q and `count` keys. Runs are whole, so S has scores of up to kKeyRun - 1
  // keys more.
  template <int stride>
  static HK_INLINE void score(const float* q, int64_t num_rows, const CacheView& view,
                              const int64_t* offsets, int64_t count, int64_t channels, float* s) {
    constexpr int together = keys == Form::rows ? max(VL / 4, 1) : VL >= 16 ? 4 : 1;
    const int64_t runs = ceil_div(count, kKeyRun);
    by_four(num_rows, [&](int64_t row, auto some) {
      const float* from = q + row * stride;
      float* to = s + row * kTileKeys;
      int64_t run = 0;
      for (; run + together <= runs; run += together) {
        if (keys == Form::rows && row == 0 && run + kAhead + together <= runs)
          prefetch<together>(view, offsets + run + kAhead, channels);
        score_runs<some, together, stride>(from, view, offsets + run, channels, to + run * kKeyRun);
      }
      for (; run < runs; ++run)
        score_runs<some, 1, stride>(from, view, offsets + run, channels, to + run * kKeyRun);
    });
  }

  // O = O * rescale + P V of `rows` rows, over some keys of the tile.
  template <int stride, class weight>
  static HK_INLINE void add(float* o, int64_t num_rows, const float* rescale, const weight* p,
                            const CacheView& view, const int64_t* offsets, Range of,
                            int64_t channels) {
    constexpr int together = VL >= 16 ? 4 : 2;
    by_four(num_rows, [&](int64_t row, auto some) {
      float* to = o + row * stride;
      const weight* weights = p + row * kTileKeys;
      int64_t c = 0;
      for (; c + together * VL <= channels; c += together * VL)
        add_panel<some, together, stride>(to + c, rescale + row, weights, view, offsets, of, c);
      for (; c < channels; c += VL)
        add_panel<some, 1, stride>(to + c, rescale + row, weights, view, offsets, of, c);
    });
  }

 private:
  // Rows lie a token of all heads apart, where no hardware prefetcher follows.
  static constexpr int64_t kAhead = 8, kLine = 64 / sizeof(element);
  template <int together>
  static HK_INLINE void prefetch(const CacheView& view, const int64_t* offsets, int64_t channels) {
    const auto* data = static_cast<const element*>(view.data);
    for (int64_t c = 0; c < channels; c += kLine)
      for (int k = 0; k < together; ++k) __builtin_prefetch(data + offsets[k] + c);
  }

  template <int count, int together, int stride>
  static HK_INLINE void score_runs(const float* q, const CacheView& view, const int64_t* offsets,
                                   int64_t channels, float* s) {
    const auto* data = static_cast<const element*>(view.data);
    if constexpr (keys == Form::rows)
      dot<count, together, stride>(q, data, offsets, channels, s);
    else
      columns<count, together, stride>(q, data, offsets, view, channels, s);
  }

  template <int count, int together, int stride>
  static HK_INLINE void dot(const float* q, const element* data, const int64_t* offsets,
                            int64_t channels, float* s) {
    vec sum[count * together] = {};
    for (int64_t c = 0; c < channels; c += VL)
#pragma GCC unroll 4
      for (int k = 0; k < together; ++k) {
        const vec key = load_run<T>(data + offsets[k] + c);
#pragma GCC unroll 4
        for (int r = 0; r < count; ++r) sum[r * together + k] += load(q + r * stride + c) * key;
      }
    static_assert(count * together <= VL);
    const vec sums = reduce_each(sum, [](auto a, auto b) { return a + b; });
    for (int i = 0; i < count * together; ++i) s[i / together * kTileKeys + i % together] = sums[i];
  }

  template <int count, int together, int stride>
  static HK_INLINE void columns(const float* q, const element* data, const int64_t* offsets,
                                const CacheView& view, int64_t channels, float* s) {
    constexpr int registers = together * int(kRunKeys) / VL;
    vec sum[count][registers] = {};
    const auto at = [&](int i) { return data + offsets[i * VL / kRunKeys] + i * VL % kRunKeys; };
    if constexpr (keys == Form::columns) {
      for (int64_t c = 0; c < channels; ++c)
#pragma GCC unroll 4
        for (int i = 0; i < registers; ++i) {
          const vec key = load_run<T>(at(i) + c * view.channel_inner);
#pragma GCC unroll 4
          for (int r = 0; r < count; ++r) sum[r][i] += splat(q[r * stride + c]) * key;
        }
    } else {
      const auto pairs_at = [&](int i) {
        return data + offsets[i * VL / kRunKeys] + 2 * (i * VL % kRunKeys);
      };
      for (int64_t c = 0; c < channels; c += 2)
#pragma GCC unroll 4
        for (int i = 0; i < registers; ++i) {
          ivec pairs;
          std::memcpy(&pairs, pairs_at(i) + c * kRunKeys, sizeof(pairs));
          const vec even = widen_lower(pairs), odd = widen_upper(pairs);
#pragma GCC unroll 4
          for (int r = 0; r < count; ++r) {
            sum[r][i] += splat(q[r * stride + c]) * even;
            sum[r][i] += splat(q[r * stride + c + 1]) * odd;
          }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < count; ++r)
      for (int i = 0; i < registers; ++i) store(s + r * kTileKeys + i * VL, sum[r][i]);
  }

  static HK_INLINE float value_of(float weight) { return weight; }
  static HK_INLINE float value_of(uint16_t weight) { return widen(BF16{}, weight); }

  template <int count, int together, int stride, class weight>
  static HK_INLINE void add_panel(float* o, const float* rescale, const weight* p,
                                  const CacheView& view, const int64_t* offsets, Range of,
                                  int64_t c) {
    const auto* data = static_cast<const element*>(view.data);
    vec sum[count][together];
#pragma GCC unroll 4
    for (int r = 0; r < count; ++r)
      for (int i = 0; i < together; ++i)
        sum[r][i] = load(o + r * stride + i * VL) * splat(rescale[r]);
    const auto add_key = [&](int64_t k, const vec(&value)[together]) {
#pragma GCC unroll 4
      for (int r = 0; r < count; ++r) {
        const vec factor = splat(value_of(p[r * kTileKeys + k]));
        for (int i = 0; i < together; ++i) sum[r][i] += factor * value[i];
      }
    };
    if constexpr (values == Form::rows) {
      for (int64_t k = of.begin; k < of.end; ++k) {
        if (k + kAhead < of.end)
          for (int64_t i = 0; i < together * VL; i += kLine)
            __builtin_prefetch(data + offsets[k + kAhead] + c + i);
        vec value[together];
        for (int i = 0; i < together; ++i) value[i] = load_run<T>(data + offsets[k] + c + i * VL);
        add_key(k, value);
      }
    } else {
      for (int64_t pair = of.begin / 2; 2 * pair < of.end; ++pair) {
        vec even[together], odd[together];
        for (int i = 0; i < together; ++i) {
          const int64_t channel = c + i * VL;
          ivec pairs;
          std::memcpy(&pairs,
                      data + offsets[pair] + channel / kRunKeys * view.channel_outer +
                          2 * (channel % kRunKeys),
                      sizeof(pairs));
          even[i] = widen_lower(pairs);
          odd[i] = widen_upper(pairs);
        }
        if (2 * pair >= of.begin) add_key(2 * pair, even);
        if (2 * pair + 1 < of.end) add_key(2 * pair + 1, odd);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < count; ++r)
      for (int i = 0; i < together; ++i) store(o + r * stride + i * VL, sum[r][i]);
  }
};

#if defined(__AMX_BF16__)

// Products of a cache of pairs by AMX's tiles, which it is made for.
struct PairsInPlace : InPlace<BF16, Form::pairs, Form::pairs> {
  using operand = uint16_t;
  static constexpr int64_t key_unit = kTileK;
  static constexpr bool kScalesQuery = false;
  static bool serves(const AttentionArgs& args) {
    return args.dtype == DType::bf16 && args.head_size % kTileK == 0 &&
           args.block_size % kTileK == 0;
  }

  template <int stride>
  static HK_INLINE void score(const uint16_t* q, int64_t, const CacheView& view,
                              const int64_t* offsets, int64_t count, int64_t channels, float* s) {
    const auto* data = static_cast<const uint16_t*>(view.data);
    const int64_t runs = ceil_div(count, kRunKeys);
    for (int64_t run = 0; run < runs; run += 4, offsets += 4, s += 4 * kRunKeys) {
      const TileRow sums(min(runs - run, 4));
      sums.zero();
      for (int64_t c = 0; c < channels; c += kTileK)
        sums.multiply(q + c, stride, [&](int64_t i) { return data + offsets[i] + c * kRunKeys; });
      sums.store_to(s, kTileKeys);
    }
  }

  // Units of keys that have an end of `of` in them are added in float32: a tile has all of a unit.
  template <int stride>
  static HK_INLINE void add(float* o, int64_t num_rows, const float* rescale, const uint16_t* p,
                            const CacheView& view, const int64_t* offsets, Range of,
                            int64_t channels) {
    const int64_t first = round_up(of.begin, kTileK), last = max(of.end / kTileK * kTileK, first);
    InPlace::add<stride>(o, num_rows, rescale, p, view, offsets, {of.begin, min(first, of.end)},
                         channels);
    const auto* data = static_cast<const uint16_t*>(view.data);
    for (int64_t c = 0; c < channels; c += 4 * kRunKeys) {
      const TileRow sums(min((channels - c) / kRunKeys, 4));
      sums.load_from(o + c, stride);
      for (int64_t k = first; k < last; k += kTileK)
        sums.multiply(p + k, kTileKeys, [&](int64_t i) {
          return data + offsets[k / 2] + (c / kRunKeys + i) * view.channel_outer;
        });
      sums.store_to(o + c, stride);
    }
    InPlace::add<stride>(o, num_rows, kKeep, p, view, offsets, {last, of.end}, channels);
  }
};

#endif

}  // namespace hk::cpu::HK_ISA
