// How a call of prefill attention becomes work items: which rows, and which of their keys.
//
// Rows are cut first: as large as packing wants (it is paid once per item and tile), as small as
// balance wants (eight items per thread). Keys are split only where rows cannot occupy the threads:
// where a block of up to 512 rows (packing is 5% of its work) under one KV head costs more than a
// thread's share of the call, which could not end before that block does. Then keys are split as
// balance wants, and rows cut only as far as splits leave to do. If that is as far as they would be
// cut without splits, to 48 rows, and there are two such items for each thread, keys stay whole:
// splits would spare no packing. Each split leaves a partial result, and once all items are done,
// these are joined.
//
// The bound. Joining costs d / 2 + 40 clocks a row and split on AVX2: a partial output written and
// read, an exponential. A key costs d / 8 clocks a row, and 3 d once to pack, so a split of s / d
// keys costs s / 8 for each of many rows and 3 s for one. With s = 2^15 (SPLIT_ELEMENTS in
// hk_backend/devices/cpu/attention.py) that is 4096 clocks against 104 at d = 128: joining takes
// up to 3%. For one row it is 98,000, or 30 us, and to wake the threads twice takes about 20.
#pragma once

#include <vector>

#include "attention/attention_args.hpp"

namespace hk::cpu {

struct Plan {
  std::vector<WorkItem> items;  // largest first
  std::vector<Joint> joints;    // of the items whose keys are split
  int64_t largest_rows = 0;
  // Up to eight blocks of rows for each thread, hence 2.1 MiB, whatever the keys.
  int64_t partial_floats = 0;
};

// The same for the same lengths, sizes, threads and kernels. `split_elements`: fewest of a split.
Plan plan_attention(const AttentionArgs& args, const AttentionKernels& kernels, int threads,
                    int64_t split_elements);

}  // namespace hk::cpu
