// The attention kernels of one instruction set: which of them computes a work item.

#include "attention/few_rows_kernel.hpp"
#include "attention/item_kernel.hpp"

namespace hk::cpu::HK_ISA {
namespace {

template <class K>
struct Kernel {};

// Calls f(kernel) with the kernel for these products, compiled for the head size if there is one.
template <class Products, class F>
HK_INLINE auto with_head_size(const AttentionArgs& args, F f) {
  const bool one_size = args.head_size == args.value_size;
  if (one_size && args.head_size == 64) return f(Kernel<ItemKernel<Products, 64>>{});
  if (one_size && args.head_size == 128) return f(Kernel<ItemKernel<Products, 128>>{});
  return f(Kernel<ItemKernel<Products, 0>>{});
}

template <class T, Form keys, Form values>
using InPlaceKernel = Kernel<FewRowsKernel<InPlace<T, keys, values>>>;

// Calls f(kernel) with the kernel for these forms of keys and values of the type T.
template <class T, class F>
HK_INLINE auto with_form(Form keys, Form values, F f) {
  if (keys == Form::rows && values == Form::rows)
    return f(InPlaceKernel<T, Form::rows, Form::rows>{});
  return f(InPlaceKernel<T, Form::columns, Form::rows>{});
}

// Calls f(kernel) with the kernel that reads keys and values in place.
template <class F>
HK_INLINE auto with_kernel_in_place(const AttentionArgs& args, Form keys, Form values, F f) {
#if defined(__AMX_BF16__)
  if (keys == Form::pairs && PairsInPlace::serves(args))
    return f(Kernel<FewRowsKernel<PairsInPlace>>{});
#endif
  if (keys == Form::pairs) return f(InPlaceKernel<BF16, Form::pairs, Form::pairs>{});
  if (args.kv_dtype == DType::f32) return with_form<F32>(keys, values, f);
  if (args.kv_dtype == DType::f16) return with_form<F16>(keys, values, f);
  return with_form<BF16>(keys, values, f);
}

// Whether a kernel reads keys and values of these forms in place.
inline bool is_in_place(const AttentionArgs& args, Form keys, Form values) {
  const bool wide =
      args.kv_dtype == DType::f32 || args.kv_dtype == DType::f16 || args.kv_dtype == DType::bf16;
  if (keys == Form::pairs || values == Form::pairs) return keys == values;
  return wide && keys != Form::none && values != Form::none;
}

// Calls f(kernel) with the kernel that packs keys and values, for a number of rows.
template <class F>
HK_INLINE auto with_packing_kernel(const AttentionArgs& args, [[maybe_unused]] int64_t rows, F f) {
#if defined(__AMX_BF16__)
  if (rows >= kTileRows && TileProducts::serves(args)) return with_head_size<TileProducts>(args, f);
#endif
#if defined(__AVX512BF16__)
  if (PairProducts::serves(args)) return with_head_size<PairProducts>(args, f);
#endif
  return with_head_size<FloatProducts>(args, f);
}

// Calls f(kernel) with the kernel for an item. It depends on the request's rows, so that a row has
// the same bits however a plan cuts its request.
template <class F>
HK_INLINE auto with_kernel(const AttentionArgs& args, const WorkItem& item, F f) {
  const Form keys = form_of_keys(args, args.key), values = form_of_values(args, args.value);
  if (Sequence(args, item.request).num_rows() <= kFewRows && is_in_place(args, keys, values))
    return with_kernel_in_place(args, keys, values, f);
  return with_packing_kernel(args, item.row_end - item.row_begin, f);
}

// Bytes of scratch memory for an item of up to `rows` rows, whichever kernel computes it.
int64_t scratch_bytes(const AttentionArgs& args, int64_t rows) {
  const auto bytes = [&]<class K>(Kernel<K>) { return K::scratch_bytes(args, rows); };
  const int64_t packing =
      max(with_packing_kernel(args, 1, bytes), with_packing_kernel(args, rows, bytes));
  const Form keys = form_of_keys(args, args.key), values = form_of_values(args, args.value);
  if (!is_in_place(args, keys, values)) return packing;
  return max(packing, with_kernel_in_place(args, keys, values, [&]<class K>(Kernel<K>) {
               return K::scratch_bytes(args, min(rows, kFewRows));
             }));
}

void attention(const AttentionArgs& args, const WorkItem& item, float* partials, void* scratch) {
  with_kernel(args, item, [&]<class K>(Kernel<K>) { K(args, item, scratch).run(partials); });
}

void join(const AttentionArgs& args, const Joint& joint, const float* partials, void* scratch) {
  with_packing_kernel(args, 1, [&]<class K>(Kernel<K>) {
    K(args, joint.rows, scratch).join(partials + joint.rows.partial, joint.splits, joint.apart);
  });
}

}  // namespace

void merge(const MergeArgs&, int64_t token_begin, int64_t token_end);

extern const AttentionKernels attention_kernels;
const AttentionKernels attention_kernels{
    kHasTiles ? 2 * kTileRows : 2 * MR, max(NR, kRunKeys), scratch_bytes, attention, join, merge};

}  // namespace hk::cpu::HK_ISA
