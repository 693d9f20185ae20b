// The one argument of the attention_merge kernels, passed by value: plain C++ for host and device.
//
// The kernels join the results of the attention_prefill kernels for parts of the keys. `partial`
// holds each part's output. `sums` holds, for each part, its rows' largest scores without the
// scale, and then the sums of their weights. Strides count elements; out's rows begin at a multiple
// of 16 bytes.
#pragma once

#include "../types/scalar.hpp"
#include "workgroups.hpp"

namespace hk {

struct AttentionMergeArgs {
  const void* partial;         // [parts, num_tokens, num_heads, head_size]
  const float* sums;           // [parts, 2, num_heads, num_tokens]
  void* out;                   // [num_tokens, num_heads, head_size]
  float* lse;                  // [num_heads, num_tokens] natural log-sum-exp, or null
  const float* key_scale;      // FP8: of each KV head's keys, or null
  const float* value_scale;    // likewise
  const float* sinks;          // [num_heads], or null
  const i32* query_start_loc;  // [num_requests + 1]: rows of no request are left alone
  i64 out_token;
  i64 out_head;
  i64 lse_head;
  i64 lse_token;
  i64 key_scale_head;
  i64 value_scale_head;
  i32 parts;
  i32 num_requests;
  i32 num_tokens;
  i32 num_heads;  // a multiple of num_kv_heads
  i32 num_kv_heads;
  float scale;         // of the scores
  float value_factor;  // of the output
};

constexpr Workgroups workgroups(const AttentionMergeArgs& args, TileSize tile) {
  return {tiles(args.num_tokens, tile.rows), args.num_heads};
}

}  // namespace hk
