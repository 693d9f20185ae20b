// The one argument of the attention_prefill kernels, passed by value: plain C++ for host and
// device.
//
// Strides count elements, of a cache those that it stores. The channels of a row of query, key,
// value and out are contiguous and start at a multiple of 16 bytes, as pointers and strides do;
// token strides are at least as many and below 2^26 elements.
//
// A score is a float32 sum, and scale * score may be any number: also one past float32, where lse
// is infinite. A score of minus infinity has no weight; NaN or plus infinity make the row's out
// NaN.
//
// A cache may keep 16 bytes together, x = 8 elements or 16 codes. These are x channels of a key,
// [channels / x, tokens, x], or x tokens of a value's channel, [channels, tokens] or [tokens / x,
// channels, x]. Pieces are a multiple of 16 bytes apart. Tokens are key_token and
// value_token elements apart (x, and 1 or value_size). What lies past a sequence's end in its last
// block may be anything. With pages of no multiple of 16 tokens, token and block strides of keys
// and of values are equal.
//
// A row sees its own key and those before it, with a window the last `window` of these. Keys and
// values that no row of a request sees may be anything, but the block table is valid from the tile
// of 64 keys with the first visible key on. A sink is one more score of its head, which has no
// value: minus infinity is none, plus infinity takes all the weight. Only kernels with the masks
// `window`, `capped` and `alibi` look at either, and those with `window_part` at the window.
//
// The mask `capped` turns a score s into soft_cap * tanh(s / soft_cap), off by up to 2^-22 of the
// cap; an infinite score becomes the cap. The mask `alibi` adds slope * (key - query position) to a
// score, and is causal where there are slopes. The bias divided by the scale must be a float32.
//
// The rows of a workgroup belong to all query heads of a KV head: row r to token r / group and head
// r % group. With the masks `window`, `capped`, `alibi` and `window_part` they belong to one head.
// 31 tokens of query, out and lse span less than 2^32 - 2^12 bytes, with all heads of a group.
// num_tokens * group^2 is below 2^31.
//
// Grid: KV heads (heads), then query tiles: ceil(num_tokens * group / query rows of a workgroup) +
// num_requests - 1, below 2^16. That bounds those of any batch; workgroups without one leave.
//
// The mask `part` shares the keys among workgroups, and the parts come first in the grid. Part p
// sees keys p * part_keys up to (p + 1) * part_keys, and the last part all the rest. With
// `window_part` these are counted from a tile of 64 keys: that where the window of the query tile's
// first row begins. A part leaves `out` without value_factor and without sinks. In place of lse it
// leaves the rows' largest scores, without the scale, and lse_part / 2 elements later the sums of
// their weights: the input of hk/args/attention_merge.hpp.
#pragma once

#include "../types/scalar.hpp"
#include "workgroups.hpp"

namespace hk {

struct AttentionPrefillArgs {
  const void* query;           // [num_tokens, num_heads, head_size]
  const void* key;             // packed [kv tokens, num_kv_heads, head_size] or the paged cache
  const void* value;           // likewise, of value_size channels
  void* out;                   // [num_tokens, num_heads, value_size]
  float* lse;                  // [num_heads, num_tokens] natural log-sum-exp, or null
  const float* key_scale;      // FP8: of each KV head's keys, or null
  const float* value_scale;    // likewise
  const i32* query_start_loc;  // [num_requests + 1]
  const i32* key_start_loc;    // packed: [num_requests + 1], query_start_loc if the caller has none
  const i32* seq_lens;         // paged: [num_requests] keys of each request
  const i32* block_table;      // paged: [num_requests, block_table_row]
  i64 query_token;
  i64 query_head;
  i64 out_token;
  i64 out_head;
  i64 key_block;  // paged
  i64 key_head;
  i64 key_token;
  i64 key_piece;    // split: from one piece of channels to the next
  i64 value_block;  // paged
  i64 value_head;
  i64 value_token;
  i64 value_piece;  // split: from a channel to the next
  i64 lse_head;
  i64 lse_token;
  i64 block_table_row;  // paged
  i64 key_scale_head;   // 0: one scale for all heads
  i64 value_scale_head;
  i32 num_requests;
  i32 num_tokens;  // rows of query that exist
  i32 num_heads;   // a multiple of num_kv_heads
  i32 num_kv_heads;
  i32 block_size;        // paged: tokens of a block
  u32 block_reciprocal;  // what divides by it (hk_backend/kernels/row_sources.py)
  u32 block_rows;        // paged: from a block to the next, in token strides
  i32 num_blocks;        // paged
  i32 causal;            // 0 or 1
  float scale;           // of the scores, |scale| at most 2^127
  float value_factor;    // of the output
  i32 window;            // with causal; 2^30: none
  const float* sinks;    // [num_heads], or null
  i64 out_part;          // parts: from one to the next
  i64 lse_part;
  i32 part_keys;              // parts: a multiple of 64
  i32 parts;                  // 1 or more
  u32 group;                  // query heads of a KV head
  u32 group_reciprocal;       // 2^31 / group, rounded up
  i32 head_size;              // of kernels for several: a multiple of 8 up to theirs
  float soft_cap;             // of the mask `capped`: above 0
  const float* alibi_slopes;  // of the mask `alibi`: [num_heads], or null
  i32 value_size;             // of value and out, as head_size is of query and key
};

// Workgroups of a launch. `grouped`: a tile has the rows of all query heads of a KV head.
// `in_parts`: the keys are shared.
constexpr Workgroups workgroups(const AttentionPrefillArgs& args, TileSize tile, bool grouped,
                                bool in_parts) {
  const i64 rows = i64(args.num_tokens) * (grouped ? args.group : 1);
  const i64 most = tiles(rows, tile.rows) + args.num_requests - 1;
  const i64 heads = grouped ? args.num_kv_heads : args.num_heads, query_tiles = most > 1 ? most : 1;
  return in_parts ? Workgroups{args.parts, heads, query_tiles} : Workgroups{heads, query_tiles};
}

}  // namespace hk
