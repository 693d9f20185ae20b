// The token and the query head of each row of a query tile.
#pragma once

#include "hk/types/divisor.hpp"
#include "shape.hpp"

namespace hk::attention {

// The rows of a request that one wave computes. Grouped rows belong to all query heads of a KV
// head, token by token: row r to token r / group and head r % group. Other rows belong to one head.
template <bool Grouped>
struct WaveRows {
  Divisor group;    // query heads of a KV head
  u32 token, head;  // of the first row: from the request's first token, from the group's first head
  i32 count;        // rows that exist

  // `first`: of the request's rows.
  HK_DEVICE WaveRows(Divisor heads, u32 first, i32 rows)
      : group(heads), token(first), head(0), count(rows) {
    if constexpr (Grouped) {
      const auto [quotient, rest] = group.divide(first);
      token = quotient, head = rest;
    }
  }

  // Rows of so many tokens.
  HK_DEVICE static i32 of_tokens(i32 tokens, Divisor heads) {
    return Grouped ? tokens * i32(heads.by) : tokens;
  }
  // Tokens from the wave's first one to that of its `row`th row.
  HK_DEVICE u32 token_of(u32 row) const {
    return Grouped ? group.divide(head + row).quotient : row;
  }
  // The `row`th row's first byte, from that of the group's first head of the wave's first token.
  HK_DEVICE u32 byte_of(u32 row, u32 token_bytes, u32 head_bytes) const {
    if constexpr (!Grouped) return row * token_bytes;
    const auto [tokens, heads] = group.divide(head + row);
    return tokens * token_bytes + heads * head_bytes;
  }
};

// The first bytes of neighbouring rows, without a division for each. Past the last row it stays
// there.
template <bool Grouped>
class RowWalk {
 public:
  u32 byte;

  HK_DEVICE RowWalk(const WaveRows<Grouped>& of, i32 row, u32 token_bytes, u32 head_bytes)
      : rows(of), step(Grouped ? head_bytes : token_bytes),
        past_head(token_bytes - of.group.by * head_bytes) {
    row = min(row, rows.count - 1);
    byte = rows.byte_of(row, token_bytes, head_bytes);
    if constexpr (Grouped) heads_left = rows.group.by - rows.group.divide(rows.head + row).rest;
  }
  // Moves on to `row`, from the one before it.
  HK_DEVICE void next(i32 row) {
    if (row >= rows.count) return;
    byte += step;
    if constexpr (Grouped) {
      const bool ends = --heads_left == 0;
      byte += ends ? past_head : 0;
      heads_left = ends ? rows.group.by : heads_left;
    }
  }

 private:
  const WaveRows<Grouped>& rows;
  u32 step, past_head, heads_left;
};

}  // namespace hk::attention
