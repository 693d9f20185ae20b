// The place of a request's keys and values: packed tensors, or a paged cache.
#pragma once

#include "shape.hpp"

namespace hk::attention {

// The numbers that each request has for its keys: the packed tensors' starts, or the cache's
// lengths.
template <class Source>
HK_DEVICE const i32* key_lengths(const AttentionPrefillArgs& args) {
  return Source::kBlocks ? args.seq_lens : args.key_start_loc;
}
template <class Source>
HK_DEVICE i32 key_lengths_count(const AttentionPrefillArgs& args) {
  return args.num_requests + !Source::kBlocks;
}

template <class Source>
HK_DEVICE Source row_source(const AttentionPrefillArgs& args, const QueryTile& tile) {
  return {row_source<typename Source::Rows>(args, tile)};
}

template <>
HK_DEVICE PackedRows row_source(const AttentionPrefillArgs&, const QueryTile& tile) {
  return {tile.next_beside - tile.beside};
}

template <>
HK_DEVICE PagedRows row_source(const AttentionPrefillArgs& args, const QueryTile& tile) {
  return {tile.beside, constant(args.block_table + offset(tile.request, args.block_table_row)),
          u32(args.block_size), args.block_reciprocal};
}

template <>
HK_DEVICE SplitPagedRows row_source(const AttentionPrefillArgs& args, const QueryTile& tile) {
  return {row_source<PagedRows>(args, tile)};
}

template <>
HK_DEVICE TokenRows row_source(const AttentionPrefillArgs& args, const QueryTile& tile) {
  return {{tile.beside, address(args.block_table + offset(tile.request, args.block_table_row))}};
}

template <>
HK_DEVICE AnyPagedRows row_source(const AttentionPrefillArgs& args, const QueryTile& tile) {
  AnyPagedRows rows{row_source<TokenRows>(args, tile), u32(args.block_size), args.block_rows,
                    args.block_reciprocal, 0};
  rows.block_count = rows.divide(max(rows.count - 1, 0)).quotient + 1;
  return rows;
}

// The elements of keys and values in memory: T, or FP8 codes.
template <class T, class Source, bool Widens = Source::kWidens>
struct StoredAs {
  using Type = T;
};
template <class T, class Source>
struct StoredAs<T, Source, true> {
  using Type = typename Source::Code;
};
template <class T, class Source>
using StoredOf = typename StoredAs<T, Source>::Type;

// A KV head's scale; 1 where the host has it, or where elements are stored.
template <class Source>
HK_DEVICE f32 stored_scale(const f32* scales, u32 kv_head, i64 apart) {
  if constexpr (!Source::kWidens) return 1.0f;
  return scales ? constant(scales)[offset(kv_head, apart)] : 1.0f;
}

// Sets the strides of a tensor with `pieces` of 16 bytes in 16 rows, or twice as many of 8 rows.
template <class T, class Source>
HK_DEVICE void in_pieces(TensorRows<Source>& rows, i64 stride, u32 pieces) {
  rows.piece_stride = stride * sizeof(T);
  rows.extent = (pieces - 1) * rows.piece_stride + 16 * rows.row_stride;
}

// The rows of a KV head. Packed: from the request's first token on.
template <class T, class Source>
HK_DEVICE TensorRows<Source> tensor_rows(const QueryTile& tile, const void* data, i64 block,
                                         u64 head, i64 token) {
  const u64 first = Source::kBlocks ? 0 : offset(tile.beside, token);
  return {address(data) + (head + first) * sizeof(T), u32(block * sizeof(T)),
          u32(token * sizeof(T))};
}

}  // namespace hk::attention
