// Decode attention with other ways to join the parts of a request than a tree (join_level.hpp in
// csrc/kernels/attention). Candidates that no planner selects.
//
//   last          the last workgroup of a request joins all of its parts
//   left, merge   each part is left in memory, and a second kernel joins them
//   added         all parts are taken from one maximum, known before, and added up by atomics
//
// Bounds, for P parts of R bytes each, where one of 256 CUs has 12.5 bytes of HBM in a clock:
//   tree    8 R / 12.5 clocks and three latencies of memory a level: 2 us for 8 rows
//   last    P R / 12.5 clocks, after the last part: 128 parts of 8 rows take 21 us
//   merge   the gap between two kernels, 4.7 us, and the latencies of a level
//   added   R / 12.5 clocks and two latencies. The adds of all parts meet at the same addresses, which
//           the clock does not see: its time is a lower bound. The order of the adds decides on bits
#include "attention_decode_joins/added.hpp"
#include "attention_decode_joins/last.hpp"
#include "attention_decode_joins/merge.hpp"

HK_ARCHES(gfx950);

namespace hk::attention {
using DecodeLast = Last;
using DecodeLeft = Left;
using DecodeAdded = Added;
}  // namespace hk::attention
#define ATTENTION_DECODE_MASK_Last _last
#define ATTENTION_DECODE_MASK_Left _left
#define ATTENTION_DECODE_MASK_Added _added

ATTENTION_DECODE(128, 64, Last, paged);
ATTENTION_DECODE(128, 64, Left, paged);
ATTENTION_DECODE(128, 64, Added, paged);

#define MERGE(T)                                                    \
  using merge_##T = hk::attention::OneDecodeSize<hk::T, 128, 64>;   \
  HK_KERNEL(hk::attention::kMergeThreads, 4)                        \
  attention_decode_##T##_d128_merge(hk::AttentionDecodeArgs args) { \
    hk::attention::merge<merge_##T>(args);                          \
  }                                                                 \
  HK_KERNEL_INFO(attention_decode_##T##_d128_merge,                 \
                 hk::attention::merge_info<merge_##T>({#T, 128, "paged", #T, "merge", false}));

MERGE(bf16)
