// Rows of a request, and the keys that each of them sees. Plans and kernels use it.
#pragma once

#include "attention/attention_args.hpp"
#include "attention/range.hpp"

namespace hk::cpu {

// One request's lengths and masks, read once per work item. row = token * group + head in group.
struct Sequence {
  int64_t first_token, num_queries, num_keys, group;
  bool causal;
  int64_t window;

  HK_INLINE Sequence(const AttentionArgs& args, int64_t request) {
    const int32_t* key_starts = args.key_start_loc ? args.key_start_loc : args.query_start_loc;
    first_token = args.query_start_loc[request];
    num_queries = args.query_start_loc[request + 1] - first_token;
    num_keys = args.paged ? args.seq_lens[request] : key_starts[request + 1] - key_starts[request];
    group = args.num_heads / args.num_kv_heads;
    causal = args.causal;
    window = args.sliding_window;
  }

  HK_INLINE int64_t num_rows() const { return num_queries * group; }
  HK_INLINE int64_t position(int64_t row) const { return num_keys - num_queries + row / group; }

  // Keys that the query at a position sees. Neither end decreases as the position grows.
  HK_INLINE Range visible(int64_t at) const {
    Range keys{0, num_keys};
    if (causal) keys.end = min(keys.end, at + 1);
    if (window) keys = clip(keys, at - window + 1, causal ? keys.end : at + window);
    return keys;
  }

  // Keys that any of the rows from `begin` to `end` sees.
  HK_INLINE Range visible(int64_t begin, int64_t end) const {
    return {visible(position(begin)).begin, visible(position(end - 1)).end};
  }
};

}  // namespace hk::cpu
