// Cuts a call of prefill attention into work items: some rows, and some or all of their keys.
//
// Rows are cut first. Large items save packing, which is paid once per item and tile. Small items
// balance the threads, which want six items each.
//
// Keys are split only where rows cannot occupy the threads. A call cannot end before its largest
// block of rows, up to 512 under one KV head. Keys are split if that block costs more than a
// thread's share of the call. For such a block packing is only 5% of the work. Then keys are split
// for balance, and rows are cut only as far as splits leave the balance to do. Keys stay whole if
// rows would be cut as far without splits, to 48 rows, with two such items for each thread: splits
// would save no packing. Each split leaves a partial result; these are joined once all items are
// done.
//
// Cost of joining. On AVX2 it takes d / 2 + 40 clocks for each row and split: a partial output is
// written and read, and there is one exponential. A key costs d / 8 clocks a row, and 3 d once for
// packing. A split of s / d keys therefore costs s / 8 for each of many rows, and 3 s for one row.
// With s = 2^15 (SPLIT_ELEMENTS in devices/cpu/prepared_attention.py) and d = 128 that is 4096
// clocks against 104, so joining takes up to 3%. For one row it is 98,000 clocks, or 30 us, while
// waking the threads twice takes about 20 us.
#pragma once

#include <vector>

#include "attention/attention_args.hpp"

namespace hk::cpu {

struct Plan {
  std::vector<WorkItem> items;  // largest first
  std::vector<Joint> joints;    // one for each group of items that split the keys of the same rows
  int64_t largest_rows = 0;
  // Floats of all partial results: up to eight blocks of rows, or 2.1 MiB, for each thread.
  int64_t partial_floats = 0;
};

// Plans a call. Equal lengths, sizes, threads and kernels give equal plans. `split_elements`:
// fewest elements (keys * head size) of a split.
Plan plan_attention(const AttentionArgs& args, const AttentionKernels& kernels, int threads,
                    int64_t split_elements);

}  // namespace hk::cpu
