// Rows of a work item, whatever multiplies them: their queries, masks, online softmax and output.
//
// A split of the keys leaves max, sum and O of each row. Joining the splits of a row is one more
// step of the online softmax: take the largest max, and multiply every sum and O by
// 2^(max - largest).
//
// Choices. The query heads of a group share K and V, so a row is a (token, head in group) pair.
// Sums, scores and softmax are float32. log2(e) and the scale are folded into a float32 Q. Causal
// and window masks leave each row one contiguous range of keys, and only rows whose range ends
// inside a tile are masked.
#pragma once

#include <type_traits>

#include "attention/item_buffers.hpp"
#include "attention/softmax.hpp"

namespace hk::cpu::HK_ISA {
namespace {

// Products: operand, rows, block_rows, key_unit, kScalesQuery and kPacks (products.hpp, in_place.hpp).
// D: head size of keys and values if it is known at compile time, else 0. With 0, rows are stored
// with the largest head size, so that addresses in the multiply are one register plus a constant.
template <class Products, int D>
class ItemRows {
 public:
  ItemRows(const AttentionArgs& args, const WorkItem& item, void* scratch)
      : args_(args), item_(item), sequence_(args, item.request),
        rows_(item.row_end - item.row_begin), padded_rows_(round_up(rows_, kRows)),
        factor_(score_factor()), buffers_(scratch, sizes(args, rows_)) {}

  static int64_t scratch_bytes(const AttentionArgs& args, int64_t rows) {
    return Buffers<operand>::bytes(sizes(args, rows));
  }

  // Joins the splits' partial results of rows and stores their output.
  void join(const float* first, int64_t splits, int64_t apart) {
    for (int64_t row = 0; row < rows_; ++row, first += partial_row(value_size()))
      join_row(row, first, splits, apart);
    store_output();
  }

 protected:
  using operand = typename Products::operand;
  static constexpr int64_t kStride = D ? D : kMaxHeadSize;
  static constexpr int64_t kRows = Products::rows;
  static constexpr int64_t kBlockRows = Products::block_rows;
  // Granularity, in keys, in which weights are computed: whole units of keys and whole registers.
  static constexpr int64_t kUnit = max(VL, Products::key_unit);
  // Number of rows whose softmax is computed side by side.
  static constexpr int kTogether = kRows <= 16 ? kRows : kRows / 2;

  // One value for each row of a register tile, in whole registers.
  struct RowValues {
    float at[(kRows + VL - 1) / VL * VL] = {};
  };

  static HK_INLINE ItemSizes sizes(const AttentionArgs& args, int64_t rows) {
    return {round_up(rows, kRows), kBlockRows,      kStride,
            args.head_size,        args.value_size, Products::kPacks ? kTileKeys : 0};
  }

  // Sizes of a head; if D is not 0 they are constants for the compiler.
  HK_INLINE int64_t head_size() const { return D ? D : args_.head_size; }
  HK_INLINE int64_t value_size() const { return D ? D : args_.value_size; }

  // Prepares all rows before their first tile of keys.
  void begin() {
    load_query();
    for (int64_t row = 0; row < padded_rows_; ++row) {
      buffers_.positions[row] = sequence_.position(item_.row_begin + min(row, rows_ - 1));
      buffers_.row_top[row] = kNegInf;
    }
    std::memset(buffers_.sums, 0, sizeof(float) * padded_rows_ * VL);
    std::memset(buffers_.output, 0, sizeof(float) * padded_rows_ * kStride);
  }

  // Stores all rows after their last tile of keys.
  void finish(float* partials) {
    for (int64_t row = 0; row < rows_; ++row)
      buffers_.row_sum[row] = reduce_add(load(buffers_.sums + row * VL));
    if (item_.partial == WorkItem::kWhole)
      store_output();
    else
      store_partial(partials + item_.partial);
  }

  // Keys that a row sees, or that some rows see; padding rows see the same keys as the last row.
  HK_INLINE Range visible(int64_t row) const {
    return clip(sequence_.visible(buffers_.positions[row]), item_.keys.begin, item_.keys.end);
  }
  HK_INLINE Range visible(int64_t begin, int64_t end) const {
    return {visible(begin).begin, visible(end - 1).end};
  }
  static HK_INLINE Range in_tile(Range keys, int64_t tile) {
    return clip({keys.begin - tile, keys.end - tile}, 0, kTileKeys);
  }

  HK_INLINE float* scores(int64_t row) const { return buffers_.scores + row * kTileKeys; }
  HK_INLINE operand* weights(int64_t row) const { return buffers_.weights + row * kTileKeys; }

  // Turns a register tile's rows of S into P over `whole` units of keys; hidden keys get weight 0.
  // Maxima come first, so that one vector exponential rescales all rows, and rows do not wait for
  // each other.
  HK_INLINE void softmax_rows(int64_t row, int64_t in_block, Range whole, int64_t tile) {
    RowValues tops;
    float factor = 1.0f;
    for (int64_t r = 0; r < kRows; ++r) factor = prepare_row(row + r, in_block + r, whole, tile);
    for (int64_t r = 0; r < kRows; r += kTogether)
      row_maxima<kTogether, kTileKeys>(scores(in_block + r), whole.begin, whole.end, tops.at + r);
    raise_tops(row, factor, tops);
    for (int64_t r = 0; r < kRows; r += kTogether)
      row_weights<kTogether, kTileKeys>(scores(in_block + r), weights(in_block + r), whole.begin,
                                        whole.end, factor, tops.at + r, buffers_.rescale + row + r,
                                        buffers_.sums + (row + r) * VL);
  }

  const AttentionArgs& args_;
  const WorkItem& item_;
  Sequence sequence_;
  int64_t rows_, padded_rows_;
  float factor_;
  Buffers<operand> buffers_;

 private:
  HK_INLINE int64_t query_head(int64_t row) const {
    return item_.kv_head * sequence_.group + (item_.row_begin + row) % sequence_.group;
  }
  // Calls f(row, token, query head) for each row of the item, without a division for each.
  template <class F>
  HK_INLINE void for_each_row(F f) const {
    const int64_t group = sequence_.group, first_head = item_.kv_head * group;
    int64_t token = sequence_.first_token + item_.row_begin / group;
    int64_t in_group = item_.row_begin % group;
    for (int64_t row = 0; row < rows_; ++row) {
      f(row, token, first_head + in_group);
      if (++in_group == group) in_group = 0, ++token;
    }
  }

  // Factor from a product of Q and K to a score: in units of log2, or of 1 with a soft cap.
  HK_INLINE float score_factor() const {
    float factor = args_.scale;
    if (args_.k_scale) factor *= args_.k_scale[item_.kv_head * args_.k_scale_stride];
    return args_.logits_soft_cap ? factor : factor * kLog2E;
  }

  void load_query() {
    with_format(args_.dtype, [&](auto format) {
      using T = decltype(format);
      const auto* query = static_cast<const typename T::type*>(args_.query);
      for_each_row([&](int64_t row, int64_t token, int64_t head) {
        load_query_row<T>(query + token * args_.query_token + head * args_.query_head,
                          buffers_.query + row * kStride);
      });
    });
    const int64_t missing = padded_rows_ - rows_;
    std::memset(buffers_.query + rows_ * kStride, 0, sizeof(operand) * missing * kStride);
  }

  template <class T>
  HK_INLINE void load_query_row(const typename T::type* from, operand* to) const {
    if constexpr (std::is_same_v<T, BF16> && !Products::kScalesQuery)
      if (args_.query_channel == 1) {
        std::memcpy(to, from, sizeof(operand) * head_size());
        return;
      }
    for (int64_t c = 0; c < head_size(); c += 8) {
      f8 x;
      if (args_.query_channel == 1)
        x = load8<T>(from + c);
      else
        for (int i = 0; i < 8; ++i) x[i] = widen(T{}, from[(c + i) * args_.query_channel]);
      if constexpr (Products::kScalesQuery)
        store8<F32>(to + c, x * factor_);
      else
        store8<BF16>(to + c, x);
    }
  }

  // Caps, biases and masks a row of S; returns the factor that is still to be multiplied in.
  HK_INLINE float prepare_row(int64_t row, int64_t in_block, Range whole, int64_t tile) {
    float* s = scores(in_block);
    const Range keys = in_tile(visible(row), tile);
    const int64_t begin = whole.begin, end = whole.end;
    const float factor = Products::kScalesQuery ? 1.0f : finish_scores(s, begin, end);
    if (args_.logits_soft_cap) soft_cap(s, begin, end, args_.logits_soft_cap);
    if (args_.alibi_slopes) {
      const int64_t last = min(row, rows_ - 1);
      const float offset = float(tile - buffers_.positions[row]);
      add_alibi(s, begin, end, args_.alibi_slopes[query_head(last)] * kLog2E, offset);
    }
    for (int64_t k = begin; k < min(keys.begin, end); ++k) s[k] = kNegInf;
    for (int64_t k = max(keys.end, begin); k < end; ++k) s[k] = kNegInf;
    return factor;
  }

  // Raises the rows' maxima to those of a tile, given in `tops`. Leaves in `tops` the values that
  // exponentials subtract.
  HK_INLINE void raise_tops(int64_t row, float factor, RowValues& tops) {
    RowValues old, rescale;
    std::memcpy(old.at, buffers_.row_top + row, sizeof(float) * kRows);
    for (int64_t r = 0; r < kRows; r += VL) {
      const vec before = load(old.at + r);
      const vec top = max_or_second(load(tops.at + r) * splat(factor), before);
      // While all keys are hidden, any finite maximum gives the weights 2^-inf = 0.
      const vec finite_top = top == kNegInf ? vec{} : top;
      store(old.at + r, top);
      store(tops.at + r, finite_top);
      store(rescale.at + r, before == top ? splat(1.0f) : exp2(before - finite_top));
    }
    std::memcpy(buffers_.row_top + row, old.at, sizeof(float) * kRows);
    std::memcpy(buffers_.rescale + row, rescale.at, sizeof(float) * kRows);
  }

  // Multiplies a row of S by its factor, unless the exponential can do so. Returns the factor that
  // is still to be multiplied in.
  HK_INLINE float finish_scores(float* s, int64_t begin, int64_t end) const {
    if (factor_ > 0.0f && !args_.logits_soft_cap && !args_.alibi_slopes) return factor_;
    for (int64_t k = begin; k < end; k += VL) store(s + k, load(s + k) * splat(factor_));
    return 1.0f;
  }

  void store_partial(float* to) const {
    for (int64_t row = 0; row < rows_; ++row, to += partial_row(value_size())) {
      to[0] = buffers_.row_top[row];
      to[1] = buffers_.row_sum[row];
      std::memcpy(to + 2, buffers_.output + row * kStride, sizeof(float) * value_size());
    }
  }

  void join_row(int64_t row, const float* first, int64_t splits, int64_t apart) {
    float top = kNegInf, sum = 0.0f;
    for (int64_t s = 0; s < splits; ++s) top = first[s * apart] > top ? first[s * apart] : top;
    const float finite_top = top == kNegInf ? 0.0f : top;  // as in raise_tops
    float* output = buffers_.output + row * kStride;
    std::memset(output, 0, sizeof(float) * value_size());
    for (int64_t s = 0; s < splits; ++s) {
      const float* from = first + s * apart;
      const float weight = exp2(from[0] - finite_top);
      sum += from[1] * weight;
      for (int64_t c = 0; c < value_size(); c += 8)
        *reinterpret_cast<f8_u*>(output + c) +=
            *reinterpret_cast<const f8_u*>(from + 2 + c) * weight;
    }
    buffers_.row_top[row] = top;
    buffers_.row_sum[row] = sum;
  }

  void store_output() {
    with_format(args_.dtype, [&](auto format) {
      for_each_row(
          [&](int64_t row, int64_t token, int64_t head) { store_row(format, row, token, head); });
    });
  }

  template <class T>
  HK_INLINE void store_row(T, int64_t row, int64_t token, int64_t head) {
    float top = buffers_.row_top[row], sum = buffers_.row_sum[row], weight = 1.0f;
    if (args_.sinks) {
      const float sink = args_.sinks[head] * kLog2E;
      const float old_top = top;
      top = sink > top ? sink : top;
      weight = old_top == kNegInf ? 0.0f : exp2(old_top - top);
      const float below = sink == top ? 0.0f : sink - top;  // infinity - infinity would be NaN
      sum = sum * weight + (sink == kNegInf ? 0.0f : exp2(below));
    }
    float factor = sum == 0.0f ? 0.0f : weight / sum * args_.value_factor;
    if (args_.v_scale) factor *= args_.v_scale[item_.kv_head * args_.v_scale_stride];
    auto* to =
        static_cast<typename T::type*>(args_.out) + token * args_.out_token + head * args_.out_head;
    const float* from = buffers_.output + row * kStride;
    int64_t c = 0;
    if (args_.out_channel == 1)
      for (; c + VL <= value_size(); c += VL)
        store_run<T>(to + c, factor == 0.0f ? vec{} : load(from + c) * splat(factor));
    for (; c < value_size(); c += 8) {
      const f8 x = factor == 0.0f ? f8{} : *reinterpret_cast<const f8_u*>(from + c) * factor;
      if (args_.out_channel == 1)
        store8<T>(to + c, x);
      else
        for (int i = 0; i < 8; ++i) to[(c + i) * args_.out_channel] = narrow(T{}, x[i]);
    }
    if (args_.lse) {
      float* lse = args_.lse + head * args_.lse_head + token * args_.lse_token;
      *lse = sum == 0.0f ? kNegInf : (top + __builtin_log2f(sum)) * kLn2;
    }
  }
};

}  // namespace
}  // namespace hk::cpu::HK_ISA
