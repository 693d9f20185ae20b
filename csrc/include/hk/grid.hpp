// Which workgroup computes what.
#pragma once

#include "types/global_view.hpp"
#include "types/register_tile.hpp"

namespace hk {

// Workgroup ids go round the XCDs, each with an L2 of its own. Consecutive items (heads that
// share keys) are given to one XCD: a permutation of 0 to `count` - 1 where the XCDs divide it.
HK_DEVICE u32 neighbours_on_one_xcd(u32 id, u32 count) {
  if (count % arch::kXcds != 0) return id;
  return id % arch::kXcds * (count / arch::kXcds) + id / arch::kXcds;
}

// A tile of query rows of one request.
struct QueryTile {
  bool exists;
  i32 request, first_row;
  i32 start, length;        // the request's first token and its number of tokens
  i32 beside, next_beside;  // of another array: the request's element, and the one after it
};

// Finds tile number `slot` of a ragged batch. Request r owns the slots from
// start[r] / Rows + r on: at least as many as it has tiles, and a number that each request knows
// without its predecessors. 64 requests are asked at once, and a step narrows 64-fold. In the last
// step each lane also reads what else is wanted of its request, so that nothing is looked up after
// it. Past its end `beside` reads as zeros.
template <int Rows>
HK_DEVICE QueryTile find_query_tile(const i32* starts, i32 requests, i32 tokens, i32 slot,
                                    Lane lane, bool last_tile_first, const i32* beside,
                                    i32 beside_count) {
  const BoundedView view(address(starts), (requests + 1) * 4);
  const BoundedView others(address(beside), beside_count * 4);
  const auto at = [](BoundedView array, i32 index) -> i32 {
    return __builtin_amdgcn_raw_buffer_load_b32(array.descriptor, index * 4, 0, 0);
  };
  const auto last_begun = [&](i32 asked, i32 start) {
    const bool begun = (asked < requests) & (i32(u32(start) / Rows) + asked <= slot);
    return max(__builtin_popcountll(__builtin_amdgcn_ballot_w64(begun)), 1) - 1;
  };
  i32 request = 0, stride = 1;
  while (stride * 64 < requests) stride *= 64;
  for (; stride > 1; stride /= 64) {
    const i32 asked = request + lane.id * stride;
    request += last_begun(asked, at(view, asked)) * stride;
  }
  const i32 asked = request + lane.id, start = at(view, asked), end = at(view, asked + 1);
  const i32 other = at(others, asked), next_other = at(others, asked + 1);
  const i32 found = last_begun(asked, start);
  const auto of = [&](i32 value) { return __builtin_amdgcn_readlane(value, found); };
  const i32 first = of(start), length = min(of(end), tokens) - first;
  const i32 tile = slot - (i32(u32(first) / Rows) + request + found);
  const i32 tiles = ceil_div(max(length, 0), Rows);
  // Slots before the first request's are nobody's: a batch may start at any token.
  return {tile >= 0 && tile < tiles,
          request + found,
          (last_tile_first ? tiles - 1 - tile : tile) * Rows,
          first,
          length,
          of(other),
          of(next_other)};
}

}  // namespace hk
