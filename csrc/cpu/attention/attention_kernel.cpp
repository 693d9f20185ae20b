// Prefill attention for one work item: some rows of one request under one KV head.
//
//   for each tile of 256 keys that any row sees:
//     pack K and V into float32 panels                               (read in place, any layout)
//     for each block of two register tiles of rows:
//       S = Q K^T          register tile by register tile, K panel in L1
//       P = 2^(S - max)    online softmax, one row at a time, S in L1
//       O = O * 2^(old max - max) + P V
//   O / sum -> out, max + log(sum) -> lse
//
// Choices. The query heads of a group share K and V, so a row is a (token, head in group) pair
// and packing is paid once per group. Everything is float32 after packing: bf16 costs what fp32
// costs, and without AVX-512 the bf16 rate of this machine is a conversion away. log2(e) and the
// scale are folded into Q. Causal and window masks leave each row one contiguous range of keys:
// panels outside it are not computed, and only rows whose range ends inside a tile are masked.

#include "common/micro_gemm.hpp"
#include "attention/softmax.hpp"
#include "attention/tile_pack.hpp"

namespace hk::cpu::HK_ISA {
namespace {

constexpr int64_t kTileKeys = 256;
constexpr int64_t kMaxHeadSize = 256;
constexpr int64_t kBlockRows = 2 * MR;

HK_INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
HK_INLINE int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
HK_INLINE int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

struct Range {
  int64_t begin, end;
  HK_INLINE bool empty() const { return begin >= end; }
};
HK_INLINE Range clip(Range r, int64_t begin, int64_t end) {
  return {max(r.begin, begin), min(r.end, end)};
}

// Where the lengths of a request put its rows: read once per work item.
struct Sequence {
  int64_t first_token, num_queries, num_keys, group;
  bool causal;
  int64_t window;

  Sequence(const AttentionArgs& args, int64_t request) {
    const int32_t* key_starts = args.key_start_loc ? args.key_start_loc : args.query_start_loc;
    first_token = args.query_start_loc[request];
    num_queries = args.query_start_loc[request + 1] - first_token;
    num_keys = args.paged ? args.seq_lens[request] : key_starts[request + 1] - key_starts[request];
    group = args.num_heads / args.num_kv_heads;
    causal = args.causal;
    window = args.sliding_window;
  }

  HK_INLINE int64_t position(int64_t row) const { return num_keys - num_queries + row / group; }

  // The keys that the query at a position sees. Both ends never fall with the position.
  HK_INLINE Range visible(int64_t at) const {
    Range keys{0, num_keys};
    if (causal) keys.end = min(keys.end, at + 1);
    if (window) keys = clip(keys, at - window + 1, causal ? keys.end : at + window);
    return keys;
  }
};

// The thread's buffers, carved out of one allocation. `stride` is a row of Q and O.
struct Buffers {
  float *query, *output, *row_top, *row_sum, *rescale, *keys, *values, *scores;
  int64_t *offsets, *key_channels, *value_channels, *positions;

  static int64_t floats(int64_t rows, int64_t stride, int64_t head_size) {
    return rows * (2 * stride + 3 + 2) + kTileKeys * (head_size + round_up(head_size, NR)) +
           kBlockRows * kTileKeys + 2 * kTileKeys + 4 * kMaxHeadSize + 12 * 16;
  }

  Buffers(void* scratch, int64_t rows, int64_t stride, int64_t head_size) {
    char* at = static_cast<char*>(scratch);
    auto take = [&](int64_t count) {
      auto* p = reinterpret_cast<float*>(at);
      at += round_up(count * 4, 64);
      return p;
    };
    auto take_ints = [&](int64_t count) { return reinterpret_cast<int64_t*>(take(2 * count)); };
    offsets = take_ints(kTileKeys);
    key_channels = take_ints(kMaxHeadSize);
    value_channels = take_ints(kMaxHeadSize);
    positions = take_ints(rows);
    keys = take(kTileKeys * head_size);
    values = take(kTileKeys * round_up(head_size, NR));
    scores = take(kBlockRows * kTileKeys);
    query = take(rows * stride);
    output = take(rows * stride);
    row_top = take(rows);
    row_sum = take(rows);
    rescale = take(rows);
  }
};

// D: head size if it is known at compile time, else 0. Its rows then have the largest size, so
// that every address in the multiply is a constant away from one register.
template <int D>
class ItemKernel {
  static constexpr int64_t kStride = D ? D : kMaxHeadSize;

 public:
  ItemKernel(const AttentionArgs& args, const WorkItem& item, void* scratch)
      : args_(args), item_(item), sequence_(args, item.request),
        rows_(item.row_end - item.row_begin), padded_rows_(round_up(rows_, MR)),
        head_size_(D ? D : args.head_size), buffers_(scratch, padded_rows_, kStride, head_size_) {}

  static int64_t scratch_bytes(int64_t rows, int64_t head_size) {
    return 4 * Buffers::floats(round_up(rows, MR), kStride, head_size);
  }

  void run() {
    load_query();
    for (int64_t row = 0; row < padded_rows_; ++row) {
      buffers_.positions[row] = sequence_.position(item_.row_begin + min(row, rows_ - 1));
      buffers_.row_top[row] = kNegInf;
      buffers_.row_sum[row] = 0.0f;
    }
    std::memset(buffers_.output, 0, sizeof(float) * padded_rows_ * kStride);
    channel_offsets(args_.key, head_size_, buffers_.key_channels);
    channel_offsets(args_.value, head_size_, buffers_.value_channels);
    const Range keys = visible(0, padded_rows_);
    for (int64_t tile = keys.begin / kTileKeys * kTileKeys; tile < keys.end; tile += kTileKeys) {
      // Packing starts at a register tile's boundary: panels before it are never read.
      const int64_t count = min(keys.end, tile + kTileKeys) - tile;
      pack(tile, count);
      for (int64_t row = 0; row < padded_rows_; row += kBlockRows)
        row_block(tile, row, min(row + kBlockRows, padded_rows_));
    }
    store_output();
  }

 private:
  HK_INLINE int64_t query_head(int64_t row) const {
    return item_.kv_head * sequence_.group + (item_.row_begin + row) % sequence_.group;
  }
  HK_INLINE int64_t token(int64_t row) const {
    return sequence_.first_token + (item_.row_begin + row) / sequence_.group;
  }
  // The keys that a row sees, or any of some rows; padding rows see what the last row sees.
  HK_INLINE Range visible(int64_t row) const { return sequence_.visible(buffers_.positions[row]); }
  HK_INLINE Range visible(int64_t begin, int64_t end) const {
    return {visible(begin).begin, visible(end - 1).end};
  }
  static HK_INLINE Range in_tile(Range keys, int64_t tile) {
    return clip({keys.begin - tile, keys.end - tile}, 0, kTileKeys);
  }

  void load_query() {
    float factor = args_.scale;
    if (args_.k_scale) factor *= args_.k_scale[item_.kv_head * args_.k_scale_stride];
    if (!args_.logits_soft_cap) factor *= kLog2E;
    with_format(args_.dtype, [&](auto format) {
      using T = decltype(format);
      const auto* query = static_cast<const typename T::type*>(args_.query);
      for (int64_t row = 0; row < rows_; ++row) {
        const auto* from =
            query + token(row) * args_.query_token + query_head(row) * args_.query_head;
        float* to = buffers_.query + row * kStride;
        for (int64_t c = 0; c < head_size_; c += 8) {
          f8 x;
          if (args_.query_channel == 1)
            x = load8<T>(from + c);
          else
            for (int i = 0; i < 8; ++i) x[i] = widen(T{}, from[(c + i) * args_.query_channel]);
          *reinterpret_cast<f8_u*>(to + c) = x * factor;
        }
      }
    });
    const int64_t missing = padded_rows_ - rows_;
    std::memset(buffers_.query + rows_ * kStride, 0, sizeof(float) * missing * kStride);
  }

  void pack(int64_t tile, int64_t count) {
    const auto& [request, kv_head, begin, end] = item_;
    token_offsets(args_, args_.key, request, kv_head, tile, count, buffers_.offsets);
    pack_tile<Panel::keys, NR, kTileKeys>(args_, args_.key, buffers_.offsets, buffers_.key_channels,
                                          count, buffers_.keys);
    token_offsets(args_, args_.value, request, kv_head, tile, count, buffers_.offsets);
    values_finite_ = pack_tile<Panel::values, NR, kTileKeys>(
        args_, args_.value, buffers_.offsets, buffers_.value_channels, count, buffers_.values);
  }

  void row_block(int64_t tile, int64_t begin, int64_t end) {
    const int64_t groups = (end - begin) / MR;
    Range keys[kBlockRows / MR] = {};
    for (int64_t g = 0; g < groups; ++g)
      keys[g] = in_tile(visible(begin + g * MR, begin + (g + 1) * MR), tile);
    for (int64_t panel = keys[0].begin / NR * NR; panel < keys[groups - 1].end; panel += NR)
      for (int64_t g = 0; g < groups; ++g)
        if (!clip(keys[g], panel, panel + NR).empty()) score_panel(begin, g, panel);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t row = begin + g * MR;
      if (keys[g].empty()) continue;
      bool uniform = true;
      for (int64_t r = row; r < row + MR; ++r) uniform &= softmax_row(r, r - begin, keys[g], tile);
      if (uniform || values_finite_)
        accumulate<MR>(row, row - begin, keys[g]);
      else  // a hidden value that is not finite would spread: 0 * NaN is NaN
        for (int64_t r = row; r < row + MR; ++r)
          accumulate<1>(r, r - begin, in_tile(visible(r), tile));
    }
  }

  HK_INLINE void score_panel(int64_t block, int64_t group, int64_t panel) {
    RegisterTile<MR> result;
    result.zero();
    result.template multiply<kStride>(buffers_.query + (block + group * MR) * kStride,
                                      buffers_.keys + panel * head_size_, 0, head_size_);
    result.store_to(scores(group * MR) + panel, kTileKeys);
  }

  HK_INLINE float* scores(int64_t row) const { return buffers_.scores + row * kTileKeys; }

  // Turns a row of S into P over the keys of its register tile; hidden keys get weight 0.
  // Returns whether the row sees all of them.
  HK_INLINE bool softmax_row(int64_t row, int64_t in_block, Range tile_keys, int64_t tile) {
    float* s = scores(in_block);
    const Range keys = in_tile(visible(row), tile);
    const int64_t begin = tile_keys.begin / VL * VL, end = round_up(tile_keys.end, VL);
    if (args_.logits_soft_cap) soft_cap(s, begin, end, args_.logits_soft_cap);
    if (args_.alibi_slopes) {
      const int64_t last = min(row, rows_ - 1);
      const float offset = float(tile - buffers_.positions[row]);
      add_alibi(s, begin, end, args_.alibi_slopes[query_head(last)] * kLog2E, offset);
    }
    for (int64_t k = begin; k < min(keys.begin, end); ++k) s[k] = kNegInf;
    for (int64_t k = max(keys.end, begin); k < end; ++k) s[k] = kNegInf;
    const float old_top = buffers_.row_top[row];
    const float tile_top = row_max(s, begin, end);
    const float top = tile_top > old_top ? tile_top : old_top;
    // All hidden so far: any finite maximum gives the weights 2^-inf = 0.
    const float finite_top = top == kNegInf ? 0.0f : top;
    const float rescale = old_top == top ? 1.0f : exp2(old_top - finite_top);
    buffers_.row_sum[row] = buffers_.row_sum[row] * rescale + row_exp2(s, begin, end, finite_top);
    buffers_.row_top[row] = top;
    buffers_.rescale[row] = rescale;
    return keys.begin == tile_keys.begin && keys.end == tile_keys.end;
  }

  // O = O * rescale + P V for `rows` rows over one range of keys.
  template <int rows>
  HK_INLINE void accumulate(int64_t row, int64_t in_block, Range keys) {
    for (int64_t c = 0; c < head_size_; c += NR) {
      float* output = buffers_.output + row * kStride + c;
      RegisterTile<rows> tile;
      tile.load_scaled(output, kStride, buffers_.rescale + row);
      tile.template multiply<kTileKeys>(scores(in_block), buffers_.values + c * kTileKeys,
                                        keys.begin, keys.end);
      tile.store_to(output, kStride);
    }
  }

  void store_output() {
    with_format(args_.dtype, [&](auto format) {
      for (int64_t row = 0; row < rows_; ++row) store_row(format, row);
    });
  }

  template <class T>
  HK_INLINE void store_row(T, int64_t row) {
    const int64_t head = query_head(row);
    float top = buffers_.row_top[row], sum = buffers_.row_sum[row], weight = 1.0f;
    if (args_.sinks) {
      const float sink = args_.sinks[head] * kLog2E;
      const float old_top = top;
      top = sink > top ? sink : top;
      weight = old_top == kNegInf ? 0.0f : exp2(old_top - top);
      sum = sum * weight + (sink == kNegInf ? 0.0f : exp2(sink - top));
    }
    float factor = sum == 0.0f ? 0.0f : weight / sum * args_.value_factor;
    if (args_.v_scale) factor *= args_.v_scale[item_.kv_head * args_.v_scale_stride];
    auto* to = static_cast<typename T::type*>(args_.out) + token(row) * args_.out_token +
               head * args_.out_head;
    const float* from = buffers_.output + row * kStride;
    for (int64_t c = 0; c < head_size_; c += 8) {
      const f8 x = factor == 0.0f ? f8{} : *reinterpret_cast<const f8_u*>(from + c) * factor;
      if (args_.out_channel == 1)
        store8<T>(to + c, x);
      else
        for (int i = 0; i < 8; ++i) to[(c + i) * args_.out_channel] = narrow(T{}, x[i]);
    }
    if (args_.lse) {
      float* lse = args_.lse + head * args_.lse_head + token(row) * args_.lse_token;
      *lse = sum == 0.0f ? kNegInf : (top + __builtin_log2f(sum)) * kLn2;
    }
  }

  const AttentionArgs& args_;
  const WorkItem& item_;
  Sequence sequence_;
  int64_t rows_, padded_rows_, head_size_;
  Buffers buffers_;
  bool values_finite_ = true;
};

template <class F>
HK_INLINE auto with_head_size(int64_t head_size, F f) {
  switch (head_size) {
    case 64:
      return f(ItemKernel<64>::scratch_bytes, [](auto&... a) { ItemKernel<64>(a...).run(); });
    case 128:
      return f(ItemKernel<128>::scratch_bytes, [](auto&... a) { ItemKernel<128>(a...).run(); });
    default: return f(ItemKernel<0>::scratch_bytes, [](auto&... a) { ItemKernel<0>(a...).run(); });
  }
}

int64_t scratch_bytes(const AttentionArgs& args, int64_t rows) {
  return with_head_size(args.head_size,
                        [&](auto bytes, auto) { return bytes(rows, args.head_size); });
}

void attention(const AttentionArgs& args, const WorkItem& item, void* scratch) {
  with_head_size(args.head_size, [&](auto, auto run) { run(args, item, scratch); });
}

}  // namespace

void merge(const MergeArgs&, int64_t token_begin, int64_t token_end);

extern const AttentionKernels attention_kernels;
const AttentionKernels attention_kernels{kBlockRows, scratch_bytes, attention, merge};

}  // namespace hk::cpu::HK_ISA
