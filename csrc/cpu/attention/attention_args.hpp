// Arguments of one call of prefill attention: plain data that the bindings fill and kernels read.
#pragma once

#include "attention/range.hpp"
#include "common/dtype.hpp"

namespace hk::cpu {

// Layout of keys or values in memory. The element of (block, head, token in block, channel) is at
//   block * block_stride + head * head_stride
//   + token / token_split * token_outer + token % token_split * token_inner
//   + channel / channel_split * channel_outer + channel % channel_split * channel_inner
// elements from `data`. A packed tensor counts as one endless block.
struct CacheView {
  const void* data;
  int64_t block_stride, head_stride;
  int64_t token_outer, token_inner, channel_outer, channel_inner;
  int64_t token_split, channel_split;
};

struct AttentionArgs {
  const void* query;
  int64_t query_token, query_head, query_channel;  // strides in elements
  void* out;
  int64_t out_token, out_head, out_channel;
  float* lse;  // [num_heads, tokens] or null
  int64_t lse_head, lse_token;
  CacheView key, value;
  DType dtype, kv_dtype;

  const int32_t* query_start_loc;  // [num_requests + 1]
  const int32_t* key_start_loc;    // packed: [num_requests + 1]
  const int32_t* seq_lens;         // paged: [num_requests]
  const int32_t* block_table;      // paged: [num_requests, max_blocks]
  int64_t block_table_stride, max_blocks, num_blocks, block_size;
  bool paged;

  int64_t num_requests, num_tokens, num_kv_tokens;
  int64_t max_query_len;  // most query tokens of a request; 0: any
  int64_t num_heads, num_kv_heads;
  int64_t head_size, value_size;  // channels of queries and keys, and of values and out

  const float* sinks;         // [num_heads] or null
  const float* alibi_slopes;  // [num_heads] or null
  const float* k_scale;       // [num_kv_heads] (stride k_scale_stride) or null
  const float* v_scale;
  int64_t k_scale_stride, v_scale_stride;
  float scale, value_factor;
  bool causal;
  int64_t sliding_window;  // 0: none
  float logits_soft_cap;   // 0: none
};

// A share of the work: rows `row_begin` to `row_end` of one request under one KV head.
// row = token * group + query head in group, so that the rows of a group share keys and values.
struct WorkItem {
  int64_t request, kv_head, row_begin, row_end;
  Range keys;  // keys of this item, from the first key of a panel on; other keys are hidden
  // Offset of this split's result among the partial results; kWhole: the item has all keys.
  static constexpr int64_t kWhole = -1;
  int64_t partial = kWhole;
};

// Number of float32 values of a row's partial result. These are the maximum of the scores, the sum
// of the weights relative to it, and the output before the division by the sum.
HK_INLINE int64_t partial_row(int64_t value_size) { return value_size + 2; }

// Rows whose `splits` work items left partial results: the first one at `rows.partial`, and each
// `apart` floats after the one before.
struct Joint {
  WorkItem rows;
  int64_t splits, apart;
};

// Arguments of a merge: two partial results over disjoint keys, joined by their log-sum-exp.
struct MergeArgs {
  const void *output_a, *output_b;
  int64_t a_token, a_head, a_channel, b_token, b_head, b_channel;
  const float *lse_a, *lse_b;
  int64_t lse_a_head, lse_a_token, lse_b_head, lse_b_token;
  void* out;
  int64_t out_token, out_head, out_channel;
  float* lse;
  int64_t lse_head, lse_token;
  DType dtype;
  int64_t num_tokens, num_heads, head_size;
};

// The attention functions of one instruction set. `scratch` is private to a thread, `partials` is
// shared by all items of a call.
struct AttentionKernels {
  int64_t rows_per_block, keys_per_panel;
  int64_t (*scratch_bytes)(const AttentionArgs&, int64_t rows);
  void (*run)(const AttentionArgs&, const WorkItem&, float* partials, void* scratch);
  void (*join)(const AttentionArgs&, const Joint&, const float* partials, void* scratch);
  void (*merge)(const MergeArgs&, int64_t token_begin, int64_t token_end);
};

}  // namespace hk::cpu
