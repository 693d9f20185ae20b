// How a call of prefill attention becomes work items: which rows, and which of their keys.
//
// Rows are cut first: as large as packing wants (it is paid once per item and tile), as small as
// balance wants (eight items per thread). Keys are split only where rows cannot occupy the threads,
// that is, where up to 512 rows (their packing is 5% of their work) under one KV head cost more than
// a thread's share of the whole call: no other work could end earlier than they do. Then keys are
// split as balance wants, and rows are cut no further than splits leave to do. Each split leaves a
// partial result, and once all items are done, these are joined.
//
// The bound. Joining costs d / 2 + 40 clocks a row and split on AVX2: a partial output written and
// read, an exponential. A key costs d / 8 clocks a row, and 3 d once to pack, so a split of s / d
// keys costs s / 8 for each of many rows and 3 s for one. With s = 2^15 (SPLIT_ELEMENTS in
// hk_backend/devices/cpu/attention.py) that is 4096 clocks against 104 at d = 128: joining takes
// up to 3%. For one row it is 98,000, ten times as long as to wake the threads once more.
#pragma once

#include <vector>

#include "attention/attention_args.hpp"

namespace hk::cpu {

struct Plan {
  std::vector<WorkItem> items;  // largest first
  std::vector<Joint> joints;    // of the items whose keys are split
  int64_t largest_rows = 0;
  // Rows of an item and items are bounded, hence this too: 2.5 MiB a thread, whatever the keys.
  int64_t partial_floats = 0;
};

// The same for the same lengths, sizes, threads and kernels. `split_elements`: fewest of a split.
Plan plan_attention(const AttentionArgs& args, const AttentionKernels& kernels, int threads,
                    int64_t split_elements);

}  // namespace hk::cpu
