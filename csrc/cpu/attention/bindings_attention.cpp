// hk_backend._cpu: attention as Python functions of pointers, dtypes, sizes and strides.

#include "attention/bindings_attention.hpp"

#include <pybind11/stl.h>

#include <array>
#include <string>
#include <tuple>

#include "attention/attention_dispatch.hpp"

namespace py = pybind11;

namespace hk::cpu {
namespace {

using Strides2 = std::array<int64_t, 2>;
using Strides3 = std::array<int64_t, 3>;

template <class T>
T* pointer(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

// {block, head, token_outer, token_inner, channel_outer, channel_inner, token_split, channel_split}
CacheView cache_view(const std::array<int64_t, 8>& layout) {
  const auto& [block, head, token_outer, token_inner, channel_outer, channel_inner, token_split,
               channel_split] = layout;
  return {nullptr,       block,         head,        token_outer,  token_inner,
          channel_outer, channel_inner, token_split, channel_split};
}

// A call of attention without its addresses and rows, made once and run for each step of an engine.
class AttentionCall {
 public:
  AttentionCall(std::string isa, int64_t split_elements, DType dtype, DType kv_dtype,
                const std::array<int64_t, 4>& heads, const Strides3& query_strides,
                const std::array<int64_t, 8>& key_layout,
                const std::array<int64_t, 8>& value_layout, const Strides2& blocks,
                const std::array<uint64_t, 2>& vectors, const std::array<uint64_t, 2>& scales,
                const Strides2& scale_strides, float scale, float value_factor, bool causal,
                int64_t sliding_window, float logits_soft_cap, const Strides3& out_strides,
                const Strides2& lse_strides)
      : isa_(std::move(isa)), split_elements_(split_elements) {
    std::tie(args_.query_token, args_.query_head, args_.query_channel) =
        std::tuple_cat(query_strides);
    std::tie(args_.out_token, args_.out_head, args_.out_channel) = std::tuple_cat(out_strides);
    std::tie(args_.lse_head, args_.lse_token) = std::tuple_cat(lse_strides);
    args_.key = cache_view(key_layout);
    args_.value = cache_view(value_layout);
    args_.dtype = dtype;
    args_.kv_dtype = kv_dtype;
    std::tie(args_.num_heads, args_.num_kv_heads, args_.head_size, args_.value_size) =
        std::tuple_cat(heads);
    std::tie(args_.num_blocks, args_.block_size) = std::tuple_cat(blocks);
    args_.sinks = pointer<const float>(vectors[0]);
    args_.alibi_slopes = pointer<const float>(vectors[1]);
    args_.k_scale = pointer<const float>(scales[0]);
    args_.v_scale = pointer<const float>(scales[1]);
    std::tie(args_.k_scale_stride, args_.v_scale_stride) = std::tuple_cat(scale_strides);
    args_.scale = scale;
    args_.value_factor = value_factor;
    args_.causal = causal;
    args_.sliding_window = sliding_window;
    args_.logits_soft_cap = logits_soft_cap;
  }

  void run(int threads, const std::array<uint64_t, 5>& tensors, const std::array<uint64_t, 4>& rows,
           const std::array<int64_t, 6>& counts) const {
    AttentionArgs args = args_;
    args.query = pointer<void>(tensors[0]);
    args.key.data = pointer<void>(tensors[1]);
    args.value.data = pointer<void>(tensors[2]);
    args.out = pointer<void>(tensors[3]);
    args.lse = pointer<float>(tensors[4]);
    args.query_start_loc = pointer<const int32_t>(rows[0]);
    args.key_start_loc = pointer<const int32_t>(rows[1]);
    args.seq_lens = pointer<const int32_t>(rows[2]);
    args.block_table = pointer<const int32_t>(rows[3]);
    args.paged = args.seq_lens != nullptr;
    std::tie(args.num_requests, args.num_tokens, args.num_kv_tokens, args.block_table_stride,
             args.max_blocks, args.max_query_len) = std::tuple_cat(counts);
    py::gil_scoped_release release;
    attention_prefill(isa_, args, threads, split_elements_);
  }

 private:
  std::string isa_;
  int64_t split_elements_;
  AttentionArgs args_{};
};

void bind_call(py::module_& module) {
  py::class_<AttentionCall>(module, "AttentionCall",
                            "A call of attention without its addresses and rows.")
      .def(py::init<std::string, int64_t, DType, DType, const std::array<int64_t, 4>&,
                    const Strides3&, const std::array<int64_t, 8>&, const std::array<int64_t, 8>&,
                    const Strides2&, const std::array<uint64_t, 2>&, const std::array<uint64_t, 2>&,
                    const Strides2&, float, float, bool, int64_t, float, const Strides3&,
                    const Strides2&>(),
           R"(isa: instruction set. Strides count elements.

split_elements: of keys, the fewest that a thread gets where keys are split over threads.
heads: query heads, KV heads, channels of a key, of a value. key_layout, value_layout: as
CacheView.as_ints(). blocks: in the cache, and tokens of each. vectors: addresses of sinks and
ALiBi slopes. scales: addresses of the scales of keys and values. An absent address is 0.)")
      .def("run", &AttentionCall::run, R"(Computes one call.

tensors: addresses of query, key, value, out, lse. rows: addresses of query_start_loc,
key_start_loc, seq_lens, block_table. counts: requests, tokens, kv tokens (packed), row stride and
columns of block_table, most query tokens of a request (0: any). Raises ValueError on values out of
range.)");
}

void bind_merge(py::module_& module) {
  module.def(
      "merge_attention",
      [](const std::string& isa, int threads, DType dtype, const std::array<int64_t, 3>& sizes,
         uint64_t output_a, const Strides3& a_strides, uint64_t lse_a,
         const Strides2& lse_a_strides, uint64_t output_b, const Strides3& b_strides,
         uint64_t lse_b, const Strides2& lse_b_strides, uint64_t out, const Strides3& out_strides,
         uint64_t lse, const Strides2& lse_strides) {
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

void bind_attention_operators(py::module_& module) {
  bind_call(module);
  bind_merge(module);
}

}  // namespace hk::cpu
