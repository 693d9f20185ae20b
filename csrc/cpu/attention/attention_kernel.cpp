// The attention kernels of one instruction set: which of them computes a work item.

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

// Calls f(kernel) with the kernel for a number of rows.
template <class F>
HK_INLINE auto with_kernel(const AttentionArgs& args, [[maybe_unused]] int64_t rows, F f) {
#if defined(__AMX_BF16__)
  if (rows >= kTileRows && TileProducts::serves(args)) return with_head_size<TileProducts>(args, f);
#endif
#if defined(__AVX512BF16__)
  if (PairProducts::serves(args)) return with_head_size<PairProducts>(args, f);
#endif
  return with_head_size<FloatProducts>(args, f);
}

// Bytes of scratch memory for an item of up to `rows` rows, whichever kernel computes it.
int64_t scratch_bytes(const AttentionArgs& args, int64_t rows) {
  const auto bytes = [&]<class K>(Kernel<K>) { return K::scratch_bytes(args, rows); };
  return max(with_kernel(args, 1, bytes), with_kernel(args, rows, bytes));
}

void attention(const AttentionArgs& args, const WorkItem& item, float* partials, void* scratch) {
  with_kernel(args, item.row_end - item.row_begin,
              [&]<class K>(Kernel<K>) { K(args, item, scratch).run(partials); });
}

void join(const AttentionArgs& args, const Joint& joint, const float* partials, void* scratch) {
  with_kernel(args, 1, [&]<class K>(Kernel<K>) {
    K(args, joint.rows, scratch).join(partials + joint.rows.partial, joint.splits, joint.apart);
  });
}

}  // namespace

void merge(const MergeArgs&, int64_t token_begin, int64_t token_end);

extern const AttentionKernels attention_kernels;
const AttentionKernels attention_kernels{
    kHasTiles ? 2 * kTileRows : 2 * MR, NR, scratch_bytes, attention, join, merge};

}  // namespace hk::cpu::HK_ISA
