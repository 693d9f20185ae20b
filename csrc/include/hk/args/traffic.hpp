// The arguments of the memory-bound kernels that the timing model is compared with, each passed by
// value: plain C++ for host and device. Tensors are contiguous and 16-byte aligned.
#pragma once

#include "../types/scalar.hpp"
#include "workgroups.hpp"

namespace hk {

// out = weight x, for one row x. `row_bytes`, of a row of the weight and of x: a multiple of 2048.
struct GemvArgs {
  const void* x;              // [k]
  const void* weight;         // [n, k]
  const void* x_scales;       // FP8: f32 [1]; FP4: E8M0 [k / 512, 4, 4]; BF16: none
  const void* weight_scales;  // FP8: f32 [n]; FP4: E8M0 [n, k / 512, 4, 4]; BF16: none
  void* out;                  // f32 [n]
  i32 n;                      // a multiple of 16
  i32 row_bytes;
};

// One query token of each request against a paged cache, 8 query heads to a key head, d = 128. What
// is left to do over the splits is two small sums. Scores must be small: no maximum is subtracted.
struct DecodeArgs {
  const void* query;        // bf16 [batch, kv_heads, 8, 128]
  const void* key;          // bf16 [blocks, 16, kv_heads, 128]
  const void* value;        // like key
  const void* block_table;  // i32 [batch, keys / 16]
  void* out;                // f32 [batch, kv_heads, splits, 8, 128]: weighted sums of values
  void* sums;               // f32 [batch, kv_heads, splits, 8]: of the weights
  i32 batch, kv_heads, splits;
  i32 keys;        // of each request: a multiple of 128 * splits
  f32 log2_scale;  // of the scores, times log2(e)
};

// MXFP8: E4M3 elements, an E8M0 scale for 32 neighbours.
struct CastArgs {
  const void* x;  // bf16 [count]
  void* out;      // [count]
  void* scales;   // [count / 32]
  i32 count;      // a multiple of 4096
};

// Each half of a head's 128 channels turned with the other, by the angle of its token.
struct RotaryArgs {
  const void* x;              // bf16 [heads of all requests, tokens, 128]
  const void *cosine, *sine;  // bf16 [tokens, 64]
  void* out;                  // like x
  i32 rows;                   // heads of all requests * tokens, a multiple of 32
  i32 tokens;
};

// sum = dropout(x) + residual; out = LayerNorm(sum) weight + bias, over rows of 2048 channels.
struct NormArgs {
  const void *x, *residual;   // bf16 [rows, 2048]
  const void *weight, *bias;  // bf16 [2048]
  void *sum, *out;            // bf16 [rows, 2048]
  i32 rows;                   // a multiple of 4
  u32 drop;                   // of 2^16 elements dropped on average: those with a hash below it
};

// RMSNorm of rows (out: bf16 [rows, channels]), or their conversion to E4M3 with a scale for each.
struct RowArgs {
  const void* x;       // bf16 [rows, channels]
  const void* weight;  // RMSNorm: bf16 [channels]
  void* out;
  void* scales;  // conversion: f32 [rows]
  i32 rows;
  i32 channels;  // a multiple of 8, up to 16384
};

// out = x + y.
struct AddArgs {
  const void *x, *y;  // f32 [count]
  void* out;          // f32 [count]
  i32 count;          // a multiple of 1024
};

constexpr Workgroups workgroups(const GemvArgs& args, TileSize) { return {args.n / 16}; }
constexpr Workgroups workgroups(const DecodeArgs& args, TileSize) {
  return {i64(args.batch) * args.kv_heads * args.splits};
}
constexpr Workgroups workgroups(const CastArgs& args, TileSize) { return {args.count / 4096}; }
constexpr Workgroups workgroups(const RotaryArgs& args, TileSize) { return {args.rows / 32}; }
constexpr Workgroups workgroups(const NormArgs& args, TileSize) { return {args.rows / 4}; }
constexpr Workgroups workgroups(const RowArgs& args, TileSize) { return {args.rows}; }
constexpr Workgroups workgroups(const AddArgs& args, TileSize) { return {args.count / 1024}; }

}  // namespace hk
