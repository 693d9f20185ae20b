// Which workgroup computes what.
#pragma once

#include "types/global_view.hpp"
#include "types/register_tile.hpp"

namespace hk {

// Workgroup ids go round the XCDs, each with an L2 of its own. Consecutive items (heads that
// share keys) are given to one XCD: a permutation of 0 to `count` - 1 where the XCDs divide it.
HK_DEVICE i32 neighbours_on_one_xcd(i32 id, i32 count) {
  if (count % arch::kXcds != 0) return id;
  return id % arch::kXcds * (count / arch::kXcds) + id / arch::kXcds;
}

// A tile of query rows of one request.
struct QueryTile {
  bool exists;
  i32 request, first_row;
  i32 start, length;  // the request's first token and its number of tokens
};

// Finds tile number `slot` of a ragged batch. Request r owns the slots from
// start[r] / Rows + r on: at least as many as it has tiles, and a number that each request knows
// without its predecessors. 64 requests are asked at once, and a step narrows 64-fold.
template <int Rows>
HK_DEVICE QueryTile find_query_tile(const i32* starts, i32 requests, i32 tokens, i32 slot,
                                    Lane lane, bool last_tile_first) {
  if (requests <= 0) return {};
  const BoundedView view(address(starts), (requests + 1) * 4);
  i32 request = 0, stride = 1;
  while (stride * 64 < requests) stride *= 64;
  do {
    const i32 asked = request + lane.id * stride;
    const i32 start = __builtin_amdgcn_raw_buffer_load_b32(view.descriptor, asked * 4, 0, 0);
    const bool begun = asked < requests && start / Rows + asked <= slot;
    const i32 count = __builtin_popcountll(__builtin_amdgcn_ballot_w64(begun));
    request += (max(count, 1) - 1) * stride;
    stride /= 64;
  } while (stride > 0);
  const i32 start = constant(starts)[request];
  const i32 length = min(constant(starts)[request + 1], tokens) - start;
  const i32 tile = slot - (start / Rows + request), tiles = ceil_div(max(length, 0), Rows);
  // Slots before the first request's are nobody's: a batch may start at any token.
  return {tile >= 0 && tile < tiles, request, (last_tile_first ? tiles - 1 - tile : tile) * Rows,
          start, length};
}

}  // namespace hk
