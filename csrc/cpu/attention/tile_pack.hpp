// Brings a tile of keys or values into the form that the multiply reads: panels of float32,
//
//   keys    panel p, channel c: NR neighbouring keys      at  p * (channels * NR) + c * NR
//   values  panel p, key k:     NR neighbouring channels  at  p * (kTileKeys * NR) + k * NR
//
// or of bfloat16, in which two neighbouring channels (of keys) or keys (of values) lie together:
//
//   keys    panel p, channels c and c + 1: NR pairs       at  p * (channels * NR) + c * NR
//   values  panel p, keys k and k + 1:     NR pairs       at  p * (kTileKeys * NR) + k * NR
//
// Elements are moved eight keys by eight channels at a time. They are read along the axis that is
// contiguous in memory (16 bytes are enough: a cache's x), and transposed in registers if the panel
// wants the other axis. Pairs of bfloat16 along that axis move as one word. A bfloat16 cache that
// already has these pairs, sixteen of them as neighbours (CPU_ATTN's for AMX), is copied.
//
// Only keys that exist are read. The rest of the last multiplied unit is zero, so that no foreign
// value (not even NaN) can enter.
#pragma once

#include <type_traits>

#include "attention/attention_args.hpp"
#include "common/amx_gemm.hpp"

namespace hk::cpu::HK_ISA {

enum class Panel { keys, values };

// Writes the channels' offsets in elements. They are computed once, because a split axis takes two
// divisions for each. `token_offsets` does the same for keys, from the tensor's start on.
inline void channel_offsets(const CacheView& view, int64_t channels, int64_t* offsets) {
  for (int64_t c = 0; c < channels; ++c)
    offsets[c] = channels <= view.channel_split ? c * view.channel_inner
                                                : c / view.channel_split * view.channel_outer +
                                                      c % view.channel_split * view.channel_inner;
}

inline void token_offsets(const AttentionArgs& args, const CacheView& view, int64_t request,
                          int64_t kv_head, int64_t first, int64_t count, int64_t* offsets) {
  const int64_t head = kv_head * view.head_stride;
  if (!args.paged) {
    const int64_t start = (args.key_start_loc ? args.key_start_loc : args.query_start_loc)[request];
    for (int64_t i = 0; i < count; ++i) offsets[i] = head + (start + first + i) * view.token_inner;
    return;
  }
  const int32_t* blocks = args.block_table + request * args.block_table_stride;
  int64_t block = first / args.block_size, in_block = first % args.block_size;
  for (int64_t i = 0; i < count; ++block, in_block = 0) {
    const int64_t base = head + blocks[block] * view.block_stride;
    const bool split = view.token_split < args.block_size;
    for (; in_block < args.block_size && i < count; ++in_block, ++i)
      offsets[i] = base + (split ? in_block / view.token_split * view.token_outer +
                                       in_block % view.token_split * view.token_inner
                                 : in_block * view.token_inner);
  }
}

constexpr int64_t kNeighbours = 16;  // neighbouring pairs in a cache of pairs

// Whether channels of a bfloat16 cache lie in pairs as in a panel; for keys the offsets say so.
inline bool has_pairs(Panel panel, const CacheView& view, int64_t channels) {
  if (panel == Panel::keys) return view.channel_split == 2 && view.channel_inner == 1;
  const bool neighbours = view.channel_split % kNeighbours == 0 || view.channel_split >= channels;
  return view.token_split == 2 && view.token_inner == 1 && view.channel_inner == 2 && neighbours &&
         channels % kNeighbours == 0;
}

// Whether kNeighbours channels lie together, from every multiple of kNeighbours on.
inline bool has_words(const CacheView& view, int64_t channels) {
  const bool neighbours = view.channel_split % kNeighbours == 0 || view.channel_split >= channels;
  return view.channel_inner == 1 && neighbours && channels % kNeighbours == 0;
}

// Loads VL neighbours of 16 bits into the lower halves of lanes.
HK_INLINE ivec load_words(const void* from) {
  typedef uint16_t words __attribute__((vector_size(VL * 2)));
  words x;
  std::memcpy(&x, from, sizeof(x));
  return __builtin_convertvector(x, ivec);
}

// Loads VL pairs, of which only the first `count` exist; the others become zero.
HK_INLINE ivec load_existing(const uint16_t* from, int64_t count) {
  ivec pairs{};
  if (count >= VL)
    std::memcpy(&pairs, from, sizeof(pairs));
  else if (count > 0)
    std::memcpy(&pairs, from, 2 * sizeof(*from) * count);
  return pairs;
}

// Makes eight bfloat16 pairs of float32 values that bfloat16 holds exactly.
HK_INLINE f8 exact_pairs(f8 even, f8 odd) {
  const auto low = reinterpret_cast<u8x32>(even), high = reinterpret_cast<u8x32>(odd);
  return reinterpret_cast<f8>(low >> 16 | (high & 0xffff0000u));
}

// Whether panels hold a cache's elements unchanged.
template <class T, class operand>
constexpr bool kIsPanelType = std::is_same_v<T, BF16> && sizeof(operand) == sizeof(BF16::type);

template <class T, Panel panel, int kTileKeys, class operand>
struct TilePacker {
  using element = typename T::type;
  const element* data;
  bool neighbouring_channels;        // kRun channels from a multiple of kRun on lie together
  const int64_t *offsets, *channel;  // of each key and of each channel
  int64_t keys, channels;
  operand* out;
  bool pairs;           // result of has_pairs
  bool words;           // a key's channels, in the panel's type, lie kNeighbours together
  f8 not_finite = {};   // NaN if a packed element was infinite or NaN
  halves largest = {};  // bits of the largest magnitudes among elements copied in pairs
  static constexpr int kRun = run_of<T>;
  static constexpr int kTogether = sizeof(operand) == sizeof(float) ? 1 : 2;

  // Loads eight elements: a run at `at` and, if a run has fewer than eight, one at `at + next`.
  HK_INLINE f8 load(int64_t at, int64_t next) const {
    return load_runs<T>(data + at, data + at + next);
  }

  // Address in the panel of channel `c` of key `g`; the axis of pairs is a multiple of kTogether.
  HK_INLINE operand* place(int64_t g, int64_t c) const {
    const int64_t across = kTogether * (panel == Panel::keys ? g % NR : c % NR);
    return panel == Panel::keys ? out + g / NR * channels * NR + c * NR + across
                                : out + c / NR * kTileKeys * NR + g * NR + across;
  }

  // Stores eight vectors. Keys: one for each channel from c on, over keys from g on. Values: one
  // for each key from g on, over channels from c on.
  HK_INLINE void put(const f8 (&x)[8], int64_t g, int64_t c) {
    if (panel == Panel::values) {
      f8 zeros = x[0] * 0.0f;  // one sum would make groups wait for each other
      for (int i = 1; i < 8; ++i) zeros += x[i] * 0.0f;
      not_finite += zeros;
    }
    operand* to = place(g, c);
    for (int i = 0; i < 8; i += kTogether, to += kTogether * NR)
      *reinterpret_cast<f8_u*>(to) =
          kTogether == 1 ? x[i] : exact_pairs(x[i], x[i + kTogether - 1]);
  }

  // Stores VL pairs. Keys: channels c and c + 1, over keys from g on. Values: keys g and g + 1,
  // over channels from c on.
  HK_INLINE void put_pairs(ivec x, int64_t g, int64_t c) {
    if (panel == Panel::values) {
      const auto magnitude = reinterpret_cast<halves>(x & 0x7fff7fff);
      largest = magnitude > largest ? magnitude : largest;
    }
    operand* to = place(g, c);
    if constexpr (kTogether == 2) {
      std::memcpy(to, &x, sizeof(x));
    } else {
      store(to, widen_lower(x));
      store(to + NR, widen_upper(x));
    }
  }

  // Packs eight keys, reading along channels: a run of eight channels for each key. Keys of one
  // head lie a page apart, where no hardware prefetcher follows, so the code prefetches.
  HK_INLINE void group_by_channels(int64_t g, int64_t present) {
    for (int64_t c = 0; c < channels; c += 8) {
      if (g + 16 <= keys)
        for (int i = 0; i < 8; ++i) __builtin_prefetch(data + offsets[g + 8 + i] + channel[c]);
      f8 x[8];
      for (int i = 0; i < 8; ++i)
        x[i] = i < present ? load(offsets[g + i] + channel[c], channel[c + kRun % 8] - channel[c])
                           : f8{};
      if (panel == Panel::keys) transpose8(x);
      put(x, g, c);
    }
  }

  // Packs eight keys like group_by_channels, but without widening: two channels of a key, in the
  // panel's type, are one word of the transpose.
  HK_INLINE void key_words(int64_t g, int64_t present) {
    for (int64_t c = 0; c < channels; c += kNeighbours) {
      if (g + 16 <= keys)
        for (int i = 0; i < 8; ++i) __builtin_prefetch(data + offsets[g + 8 + i] + channel[c]);
      f8 x[8] = {};
      for (int i = 0; i < present; ++i)
        std::memcpy(&x[i], data + offsets[g + i] + channel[c], sizeof(x[i]));
      transpose8(x);
      for (int i = 0; i < 8; ++i) *reinterpret_cast<f8_u*>(place(g, c + 2 * i)) = x[i];
    }
  }

  // Packs values of eight keys as pairs of keys; the second key of the last pair may not exist.
  HK_INLINE void value_words(int64_t g, int64_t present) {
    for (int64_t c = 0; c < channels; c += VL)
      for (int64_t k = 0; k < present; k += 2) {
        if (g + 16 <= keys) __builtin_prefetch(data + offsets[g + 8 + k] + channel[c]);
        const ivec even = load_words(data + offsets[g + k] + channel[c]);
        const ivec odd =
            k + 1 < present ? load_words(data + offsets[g + k + 1] + channel[c]) : ivec{};
        put_pairs(even | odd << 16, g + k, c);
      }
  }

  // Packs eight keys, reading along keys: a run of neighbouring keys for each channel.
  HK_INLINE void group_by_keys(int64_t g) {
    for (int64_t c = 0; c < channels; c += 8) {
      f8 x[8];
      for (int i = 0; i < 8; ++i)
        x[i] = load(offsets[g] + channel[c + i], offsets[g + kRun % 8] - offsets[g]);
      if (panel == Panel::values) transpose8(x);
      put(x, g, c);
    }
  }

  void group_by_elements(int64_t g, int64_t present) {
    for (int64_t c = 0; c < channels; c += 8) {
      f8 x[8];
      for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 8; ++j)
          x[i][j] = j < present ? widen(T{}, data[offsets[g + j] + channel[c + i]]) : 0.0f;
      if (panel == Panel::values) transpose8(x);
      put(x, g, c);
    }
  }

  // Whether the existing ones of kNeighbours keys lie in memory in the same way as in the panel.
  bool in_pairs(int64_t g, int64_t present) const {
    bool as_panel = pairs;
    for (int64_t i = 1; i < present && as_panel; ++i)
      as_panel = offsets[g + i] ==
                 (panel == Panel::keys ? offsets[g] + 2 * i : offsets[g + i / 2 * 2] + i % 2);
    return as_panel;
  }

  HK_INLINE void keys_by_pairs(int64_t g, int64_t present) {
    const bool ahead = g + 2 * kNeighbours <= keys;
    for (int64_t c = 0; c < channels; c += 2)
      for (int64_t k = 0; k < kNeighbours; k += VL) {
        if (ahead) __builtin_prefetch(data + offsets[g + kNeighbours] + channel[c] + 2 * k);
        put_pairs(load_existing(data + offsets[g] + channel[c] + 2 * k, present - k), g + k, c);
      }
  }

  // Copies values of a cache of pairs; the second key of the last pair may not exist.
  HK_INLINE void values_by_pairs(int64_t g, int64_t present) {
    const bool ahead = g + 2 * kNeighbours <= keys;
    for (int64_t c = 0; c < channels; c += VL)
      for (int64_t k = 0; k < present; k += 2) {
        if (ahead) __builtin_prefetch(data + offsets[g + kNeighbours + k] + channel[c]);
        const ivec x = load_existing(data + offsets[g + k] + channel[c], VL);
        put_pairs(k + 1 < present ? x : x & 0xffff, g + k, c);
      }
  }

  void group_of_eight(int64_t g, int64_t present) {
    bool neighbours = present == 8;
    for (int i = 1; i < 8 && neighbours; ++i)
      neighbours = offsets[g + i] == offsets[g + i / kRun * kRun] + i % kRun;
    if (words && present == 8)
      panel == Panel::keys ? key_words(g, 8) : value_words(g, 8);
    else if (words)
      panel == Panel::keys ? key_words(g, present) : value_words(g, present);
    else if (neighbouring_channels && present == 8)
      group_by_channels(g, 8);
    else if (neighbouring_channels)
      group_by_channels(g, present);
    else if (neighbours)
      group_by_keys(g);
    else
      group_by_elements(g, present);
  }

  void pack() {
    for (int64_t g = 0; g < keys; g += 8) {
      if constexpr (std::is_same_v<T, BF16>) {
        const int64_t present = min(keys - g, kNeighbours);
        if (in_pairs(g, present)) {
          panel == Panel::keys ? keys_by_pairs(g, present) : values_by_pairs(g, present);
          g += kNeighbours - 8;
          continue;
        }
      }
      group_of_eight(g, min(keys - g, 8));
    }
  }

  bool is_finite() const {
    bool finite = true;
    for (int i = 0; i < 8; ++i) finite &= not_finite[i] == 0.0f;
    for (int i = 0; i < 2 * VL; ++i) finite &= largest[i] < 0x7f80;
    return finite;
  }
};

// Packs `keys` keys (or values) and fills the last panel with zeros: keys up to a multiple of NR,
// and for values also channels. Returns whether all packed values are finite.
template <Panel panel, int kTileKeys, class operand>
inline bool pack_tile(const AttentionArgs& args, const CacheView& view, int64_t channels,
                      const int64_t* offsets, const int64_t* channel, int64_t keys, operand* out) {
  if (panel == Panel::values && channels % NR) {
    operand* last = out + channels / NR * kTileKeys * NR;
    std::memset(last, 0, sizeof(operand) * kTileKeys * NR);
  }
  if (panel == Panel::values && kHasTiles && keys % NR)
    for (int64_t c = 0; c < channels; c += NR)
      std::memset(out + c * kTileKeys + keys / NR * NR * NR, 0, sizeof(operand) * NR * NR);
  if (panel == Panel::keys && keys % NR) {
    operand* last = out + keys / NR * channels * NR;
    std::memset(last, 0, sizeof(operand) * channels * NR);
  }
  bool finite = true;
  with_kv_format(args.kv_dtype, [&](auto format) {
    using T = decltype(format);
    const auto* data = static_cast<const typename T::type*>(view.data);
    const bool neighbouring = view.channel_inner == 1 && (view.channel_split % run_of<T> == 0 ||
                                                          view.channel_split >= channels);
    const bool pairs = has_pairs(panel, view, channels);
    const bool words = kIsPanelType<T, operand> && has_words(view, channels);
    TilePacker<T, panel, kTileKeys, operand> packer{data,     neighbouring, offsets, channel, keys,
                                                    channels, out,          pairs,   words};
    packer.pack();
    finite = packer.is_finite();
  });
  return finite;
}

}  // namespace hk::cpu::HK_ISA
