// Joins the parts of an attention whose keys were split over workgroups (attention_part.hip): for
// each row the parts' outputs, weighted by the sums of their weights, moved to the largest maximum
// of all. See hk/args/attention_merge.hpp for the argument.
//
// Memory bounds it: each byte of the parts is read once. A lane has 16 bytes of a row, a workgroup
// some rows of one head.
//
//   for each kAtOnce parts:
//     start loading their maxima, sums and outputs, all at once: their latency is one
//     the new maximum; what is there shrinks to it | add each part with its weight
//   divide by the sum (and the sink's share), round, store
//
// The order of the parts is fixed: the same bits from run to run.
#include "attention/row_weights.hpp"
#include "hk/args/attention_merge.hpp"
#include "hk/kernel_info.hpp"
#include "hk/table.hpp"

HK_ARCHES(gfx950);

namespace hk::attention {

struct MergeFacts {
  char dtype[16];
  i32 head_size;
};

template <class T, int HeadSize>
struct Merge {
  static constexpr int kThreads = 256, kElements = 16 / sizeof(T), kPairs = kElements / 2;
  static constexpr int kRowLanes = HeadSize / kElements, kRows = kThreads / kRowLanes;
  static constexpr int kAtOnce = 8;  // parts

  const AttentionMergeArgs& args;
  u32 head, row, piece;  // of this lane: its row's token, and the 16 bytes of it
  RowSums sums{kNoScore, 0};
  Pair values[kPairs] = {};

  HK_DEVICE void run() {
    const f32 factor = Scale(args.scale * of_head(args.key_scale, args.key_scale_head)).factor;
    for (i32 part = 0; part < args.parts; part += kAtOnce) add(part, factor);
    const f32 value_factor = args.value_factor * of_head(args.value_scale, args.value_scale_head);
    RowWeights weights = RowWeights::of(sums, factor, value_factor);
    const f32 sink = args.sinks ? constant(args.sinks)[head] : kNoScore;
    if (sink != kNoScore) weights = weights.with_sink(sink, value_factor);
    if (exists()) store(weights);
  }

 private:
  HK_DEVICE f32 of_head(const f32* scales, i64 apart) const {
    const u32 kv_head = head * args.num_kv_heads / args.num_heads;
    return scales ? constant(scales)[offset(kv_head, apart)] : 1.0f;
  }
  // Rows before the first request and after the last are nobody's.
  HK_DEVICE bool exists() const {
    const Constant<i32> starts = constant(args.query_start_loc);
    return i32(row) >= starts[0] && i32(row) < min(starts[args.num_requests], args.num_tokens);
  }

  HK_DEVICE void add(i32 first, f32 factor) {
    const u32 rows = args.num_tokens * u32(args.num_heads), row_bytes = HeadSize * sizeof(T);
    const i32 parts = min(args.parts - first, kAtOnce);
    const BoundedView found(address(args.sums) + wide_mul(first, 2 * rows) * sizeof(f32),
                            parts * 2 * rows * sizeof(f32));
    const BoundedView outputs(address(args.partial) + wide_mul(first, rows) * row_bytes,
                              parts * rows * row_bytes);
    const u32 column = (head * args.num_tokens + row) * sizeof(f32);
    const u32 place = (row * args.num_heads + head) * row_bytes + piece * 16;
    RowSums part[kAtOnce];
    Vec<u32, 4> output[kAtOnce];
    static_for<0, kAtOnce>([&](auto i) {
      const u32 at = column + 2 * i.value * rows * sizeof(f32);
      part[i] = {bit_cast<f32>(load_word(found, at)),
                 bit_cast<f32>(load_word(found, at + rows * sizeof(f32)))};
      output[i] = load_words<4>(outputs, place + i.value * rows * row_bytes);
    });
    fence_schedule();
    RowSums all = sums;
    static_for<0, kAtOnce>([&](auto i) {  // past the last part loads are zeros: no weight
      if (i >= parts) part[i].maximum = kNoScore;
      all.maximum = __builtin_elementwise_maximum(all.maximum, part[i].maximum);
    });
    const f32 base = all.maximum == kNoScore ? 0 : all.maximum;
    const f32 kept = __builtin_amdgcn_exp2f((sums.maximum - base) * factor);
    all.total *= kept;
    for (Pair& value : values) value *= Pair(kept);
    static_for<0, kAtOnce>([&](auto i) {
      const f32 weight = part[i].total * __builtin_amdgcn_exp2f((part[i].maximum - base) * factor);
      all.total += weight;
      // The weight is kept in two registers: a high half taken for a low one may lose sums
      // (ROCm/rocMLIR#2459).
      Pair both = Pair(weight);
      pin_vector(both);
      static_for<0, kPairs>([&](auto k) {
        const auto two = bit_cast<Vec<T, 2>>(u32(output[i][k.value]));
        values[k] += __builtin_convertvector(two, Pair) * both;
      });
    });
    sums = all;
  }

  HK_DEVICE void store(RowWeights weights) const {
    Vec<u32, 4> words;
    static_for<0, kPairs>(
        [&](auto k) { words[k.value] = convert<T>(values[k] * Pair(weights.inverse)); });
    T* out = (T*)args.out + offset(row, args.out_token) + offset(head, args.out_head);
    ((Vec<u32, 4> __attribute__((address_space(1)))*)out)[piece] = words;
    if (args.lse && piece == 0)
      ((f32 __attribute__((
          address_space(1)))*)args.lse)[offset(head, args.lse_head) + offset(row, args.lse_token)] =
          weights.log_sum_exp();
  }
};

template <class T, int HeadSize>
HK_DEVICE void merge(const AttentionMergeArgs& args) {
  using Rows = Merge<T, HeadSize>;
  const u32 thread = __builtin_amdgcn_workitem_id_x();
  Rows{args, u32(__builtin_amdgcn_workgroup_id_y()),
       __builtin_amdgcn_workgroup_id_x() * Rows::kRows + thread / Rows::kRowLanes,
       thread % Rows::kRowLanes}
      .run();
}

}  // namespace hk::attention

// A kernel for each 16-bit type.
#define ATTENTION_MERGE(D) HK_FOR_16_BIT_TYPES(ATTENTION_MERGE_KERNEL, D)
#define ATTENTION_MERGE_KERNEL(T, D)                                                              \
  HK_KERNEL((hk::attention::Merge<hk::T, D>::kThreads), 4)                                        \
  attention_merge_##T##_d##D(hk::AttentionMergeArgs args) {                                       \
    hk::attention::merge<hk::T, D>(args);                                                         \
  }                                                                                               \
  HK_KERNEL_INFO(attention_merge_##T##_d##D,                                                      \
                 hk::KernelInfo<hk::attention::MergeFacts>{hk::attention::Merge<hk::T, D>::kRows, \
                                                           1,                                     \
                                                           D,                                     \
                                                           0,                                     \
                                                           0,                                     \
                                                           "attention_merge",                     \
                                                           "attention_merge",                     \
                                                           {#T, D},                               \
                                                           {4, 0}});

ATTENTION_MERGE(64);
ATTENTION_MERGE(128);
ATTENTION_MERGE(256);
