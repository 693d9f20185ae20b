// The one argument of the attention_decode kernels, passed by value: plain C++ for host and device.
//
// The argument of attention_prefill comes first, over a cache, and its comment holds here. A tile has
// the rows of all query heads of a KV head, and all rows of a request fit in one tile.
//
// The host knows no length. `shares` workgroups of each KV head share the tiles of keys of all
// requests: each has an equal number, one after the other, of one request or several. A request
// without query tokens has no tiles and costs nothing. One with query tokens and no key has one.
//
// Grid: KV heads, then shares. `arrived` and `partial` are the workspace: a zero for each workgroup,
// which is zero again afterwards, and room for two partial results of each.
#pragma once

#include "attention_prefill.hpp"

namespace hk {

struct AttentionDecodeArgs : AttentionPrefillArgs {
  float* partial;
  u32* arrived;
  i32 shares;
};

constexpr Workgroups workgroups(const AttentionDecodeArgs& args, TileSize) {
  return {args.num_kv_heads, args.shares};
}

}  // namespace hk
