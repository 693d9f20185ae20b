// The order of workgroups: which of them computes what.
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

// The largest of all lanes' numbers, which are not negative.
HK_DEVICE i32 largest_of_wave(i32 number) {
  static_for<0, 4>([&](auto i) {  // within rows of 16 lanes
    constexpr int kRotate = 0x120 + (8 >> i.value);
    number = max(number, __builtin_amdgcn_update_dpp(0, number, kRotate, 0xf, 0xf, true));
  });
  const auto row = [&](int i) { return __builtin_amdgcn_readlane(number, 16 * i); };
  return max(max(row(0), row(1)), max(row(2), row(3)));
}

// The sum of this lane's number and those of all lanes before it.
HK_DEVICE i32 sum_up_to(i32 number) {
  const auto add = [&](auto control, auto rows) {
    number += __builtin_amdgcn_update_dpp(0, number, control.value, rows.value, 0xf, false);
  };
  static_for<0, 4>([&](auto i) {  // row_shr by 1, 2, 4 and 8: within rows of 16 lanes
    number += __builtin_amdgcn_update_dpp(0, number, 0x110 + (1 << i.value), 0xf, 0xf, false);
  });
  add(Index<0x142>{}, Index<0xa>{});  // row_bcast:15: to rows 1 and 3
  add(Index<0x143>{}, Index<0xc>{});  // row_bcast:31: to rows 2 and 3
  return number;
}

// A tile of query rows of one request.
struct QueryTile {
  bool exists;
  i32 request, first_row;
  i32 start, length;        // the request's first token and its number of tokens
  i32 beside, next_beside;  // of another array: the request's element, and the one after it
};

// Finds tile number `slot` of a ragged batch whose tokens have `token_rows` rows each. Request r
// owns the slots from start[r] / Rows + r on, with `start` in rows. These are at least as many as
// it has tiles, and each request knows the number without its predecessors. 64 requests are asked
// at once, so a step narrows 64-fold. In the last step each lane also reads what else is wanted of
// its request, so that nothing is looked up after it. Past its end `beside` reads as zeros.
//
// A request's last tile comes first: with a causal mask it takes the longest. Where that leaves
// room for it, up to 64 requests take turns: the last tiles of all, then those before them.
template <int Rows>
HK_DEVICE QueryTile find_query_tile(const i32* starts, i32 requests, i32 tokens, u32 token_rows,
                                    u32 slot, Lane lane, const i32* beside, i32 beside_count) {
  const BoundedView view(address(starts), (requests + 1) * 4);
  const BoundedView others(address(beside), beside_count * 4);
  const auto at = [](BoundedView array, i32 index) -> i32 {
    return __builtin_amdgcn_raw_buffer_load_b32(array.descriptor, index * 4, 0, 0);
  };
  const auto first_slot = [&](i32 asked, i32 start) {
    return u32(start) * token_rows / Rows + asked;
  };
  const auto last_begun = [&](i32 asked, i32 start) {
    const bool begun = (asked < requests) & (first_slot(asked, start) <= slot);
    return max(__builtin_popcountll(__builtin_amdgcn_ballot_w64(begun)), 1) - 1;
  };
  const auto tiles_of = [&](i32 length) {
    return (u32(max(length, 0)) * token_rows + Rows - 1) / Rows;
  };
  i32 request = 0, stride = 1;
  while (stride * 64 < requests) stride *= 64;
  for (; stride > 1; stride /= 64) {
    const i32 asked = request + lane.id * stride;
    request += last_begun(asked, at(view, asked)) * stride;
  }
  const i32 asked = request + lane.id, start = at(view, asked), end = at(view, asked + 1);
  const i32 other = at(others, asked), next_other = at(others, asked + 1);
  i32 found = last_begun(asked, start);
  u32 most = 0, rank = 0;  // tiles of the longest, and how many of a request's come before this one
  bool in_turns = false;
  if (requests > 1 && requests <= 64) {
    most = largest_of_wave(asked < requests ? tiles_of(min(end, tokens) - start) : 0);
    in_turns = most * requests < tiles_of(tokens) + requests;
    if (in_turns) {
      rank = slot / u32(requests);
      found = slot - rank * requests;
    }
  }
  const auto of = [&](i32 value) { return __builtin_amdgcn_readlane(value, found); };
  const i32 first = of(start), length = min(of(end), tokens) - first;
  const u32 tiles = tiles_of(length);
  if (!in_turns) {
    most = tiles;
    rank = slot - first_slot(request + found, first);
  }
  const u32 tile = most - 1 - rank;
  // Slots before the first request's are nobody's: a batch may start at any token.
  return {tile < tiles, request + found, i32(tile * Rows), first,
          length,       of(other),       of(next_other)};
}

}  // namespace hk
