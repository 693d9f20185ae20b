// Where the keys and values of a request lie: packed tensors, or a paged cache.
#pragma once

#include "shape.hpp"

namespace hk::attention {

template <class Source>
HK_DEVICE Source row_source(const AttentionPrefillArgs& args, i32 request);

template <>
HK_DEVICE PackedRows row_source(const AttentionPrefillArgs& args, i32 request) {
  const auto starts = constant(args.key_start_loc);
  return {starts[request + 1] - starts[request]};
}

template <>
HK_DEVICE PagedRows row_source(const AttentionPrefillArgs& args, i32 request) {
  return {constant(args.seq_lens)[request],
          constant(args.block_table + request * args.block_table_row), u32(args.block_size),
          PagedRows::reciprocal_of(args.block_size)};
}

// The rows of a KV head. Packed: from the request's first token on.
template <class T, class Source>
HK_DEVICE TensorRows<Source> tensor_rows(const AttentionPrefillArgs& args, i32 request,
                                         const void* data, i64 block, i64 head, i64 token) {
  const i64 first = Source::kBlocks ? 0 : constant(args.key_start_loc)[request] * token;
  return {address(data) + (head + first) * sizeof(T), u32(block * sizeof(T)),
          u32(token * sizeof(T))};
}

}  // namespace hk::attention
