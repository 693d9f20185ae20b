// hk_backend._cpu: the host kernels as Python functions of pointers, dtypes, sizes and strides.
// No torch header and no torch library: one build serves every torch version.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <optional>

#include "linear/bindings_linear.hpp"
#include "attention/attention_dispatch.hpp"
#include "common/amx_permission.hpp"
#include "common/instruction_sets.hpp"

namespace py = pybind11;

namespace hk::cpu {
namespace {

using Strides3 = std::array<int64_t, 3>;

template <class T>
T* pointer(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

// {block, head, token_outer, token_inner, channel_outer, channel_inner, token_split, channel_split}
CacheView cache_view(uint64_t address, const std::array<int64_t, 8>& layout) {
  const auto& [block, head, token_outer, token_inner, channel_outer, channel_inner, token_split,
               channel_split] = layout;
  return {pointer<void>(address), block,         head,        token_outer,  token_inner,
          channel_outer,          channel_inner, token_split, channel_split};
}

void bind_attention(py::module_& module) {
  module.def(
      "attention_prefill",
      [](const std::string& isa, int threads, int64_t split_elements, DType dtype, DType kv_dtype,
         const std::array<int64_t, 7>& sizes, uint64_t query, const Strides3& query_strides,
         uint64_t key, const std::array<int64_t, 8>& key_layout, uint64_t value,
         const std::array<int64_t, 8>& value_layout, uint64_t query_start_loc,
         uint64_t key_start_loc, uint64_t seq_lens, uint64_t block_table,
         const std::array<int64_t, 4>& blocks, uint64_t sinks, uint64_t alibi_slopes,
         uint64_t k_scale, int64_t k_scale_stride, uint64_t v_scale, int64_t v_scale_stride,
         float scale, float value_factor, bool causal, int64_t sliding_window,
         float logits_soft_cap, uint64_t out, const Strides3& out_strides, uint64_t lse,
         const std::array<int64_t, 2>& lse_strides) {
        AttentionArgs args{};
        args.query = pointer<void>(query);
        std::tie(args.query_token, args.query_head, args.query_channel) =
            std::tuple_cat(query_strides);
        args.out = pointer<void>(out);
        std::tie(args.out_token, args.out_head, args.out_channel) = std::tuple_cat(out_strides);
        args.lse = pointer<float>(lse);
        std::tie(args.lse_head, args.lse_token) = std::tuple_cat(lse_strides);
        args.key = cache_view(key, key_layout);
        args.value = cache_view(value, value_layout);
        args.dtype = dtype;
        args.kv_dtype = kv_dtype;
        args.query_start_loc = pointer<const int32_t>(query_start_loc);
        args.key_start_loc = pointer<const int32_t>(key_start_loc);
        args.seq_lens = pointer<const int32_t>(seq_lens);
        args.block_table = pointer<const int32_t>(block_table);
        std::tie(args.block_table_stride, args.max_blocks, args.num_blocks, args.block_size) =
            std::tuple_cat(blocks);
        args.paged = seq_lens != 0;
        std::tie(args.num_requests, args.num_tokens, args.num_kv_tokens, args.num_heads,
                 args.num_kv_heads, args.head_size, args.value_size) = std::tuple_cat(sizes);
        args.sinks = pointer<const float>(sinks);
        args.alibi_slopes = pointer<const float>(alibi_slopes);
        args.k_scale = pointer<const float>(k_scale);
        args.k_scale_stride = k_scale_stride;
        args.v_scale = pointer<const float>(v_scale);
        args.v_scale_stride = v_scale_stride;
        args.scale = scale;
        args.value_factor = value_factor;
        args.causal = causal;
        args.sliding_window = sliding_window;
        args.logits_soft_cap = logits_soft_cap;
        py::gil_scoped_release release;
        attention_prefill(isa, args, threads, split_elements);
      },
      R"(Prefill attention. Addresses are integers (0: absent), strides count elements.

split_elements: of keys, the fewest that a thread gets where keys are split over threads.
sizes: requests, tokens, kv tokens (packed), heads, KV heads, channels of a key, of a value.
key_layout, value_layout: as CacheView.as_ints(). blocks: row stride and columns of
block_table, blocks in the cache, block size. Raises ValueError on values out of range.)");
}

void bind_merge(py::module_& module) {
  module.def(
      "merge_attention",
      [](const std::string& isa, int threads, DType dtype, const std::array<int64_t, 3>& sizes,
         uint64_t output_a, const Strides3& a_strides, uint64_t lse_a,
         const std::array<int64_t, 2>& lse_a_strides, uint64_t output_b, const Strides3& b_strides,
         uint64_t lse_b, const std::array<int64_t, 2>& lse_b_strides, uint64_t out,
         const Strides3& out_strides, uint64_t lse, const std::array<int64_t, 2>& lse_strides) {
        MergeArgs args{};
        args.output_a = pointer<void>(output_a);
        args.output_b = pointer<void>(output_b);
        std::tie(args.a_token, args.a_head, args.a_channel) = std::tuple_cat(a_strides);
        std::tie(args.b_token, args.b_head, args.b_channel) = std::tuple_cat(b_strides);
        args.lse_a = pointer<const float>(lse_a);
        args.lse_b = pointer<const float>(lse_b);
        std::tie(args.lse_a_head, args.lse_a_token) = std::tuple_cat(lse_a_strides);
        std::tie(args.lse_b_head, args.lse_b_token) = std::tuple_cat(lse_b_strides);
        args.out = pointer<void>(out);
        std::tie(args.out_token, args.out_head, args.out_channel) = std::tuple_cat(out_strides);
        args.lse = pointer<float>(lse);
        std::tie(args.lse_head, args.lse_token) = std::tuple_cat(lse_strides);
        args.dtype = dtype;
        std::tie(args.num_tokens, args.num_heads, args.head_size) = std::tuple_cat(sizes);
        py::gil_scoped_release release;
        merge_attention(isa, args, threads);
      },
      "Join two partial attentions by their log-sum-exp. sizes: tokens, heads, head size.");
}

}  // namespace
}  // namespace hk::cpu

PYBIND11_MODULE(_cpu, module) {
  using hk::cpu::DType;
  module.doc() = "Host kernels of hk_backend: pointers in, no torch linked.";
  py::enum_<DType>(module, "DType")
      .value("float32", DType::f32)
      .value("float16", DType::f16)
      .value("bfloat16", DType::bf16)
      .value("float8_e4m3fn", DType::f8e4m3fn)
      .value("float8_e5m2", DType::f8e5m2);
  module.def("available_isas", &hk::cpu::available_isas,
             "Instruction sets that this build has and this machine runs, best first.");
  module.def("left_out_isas", &hk::cpu::left_out_isas,
             "Instruction sets of this architecture that this build was compiled without.");
  module.def("why_no_amx", &hk::cpu::why_no_amx,
             "Why `amx` is not among them; empty if the kernel permits its tiles.");
  hk::cpu::bind_attention(module);
  hk::cpu::bind_merge(module);
  hk::cpu::bind_linear_operators(module);
}
