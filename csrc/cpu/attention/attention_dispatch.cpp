#include "attention/attention_dispatch.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "common/instruction_sets.hpp"
#include "common/parallel.hpp"
#include "common/scratch.hpp"

namespace hk::cpu {

namespace {

int64_t num_keys(const AttentionArgs& args, int64_t request) {
  if (args.paged) return args.seq_lens[request];
  const int32_t* starts = args.key_start_loc ? args.key_start_loc : args.query_start_loc;
  return starts[request + 1] - starts[request];
}

// Query-key pairs of the request, heads aside: what its time is proportional to.
double work_of(const AttentionArgs& args, int64_t queries, int64_t keys, int64_t begin,
               int64_t end) {
  double last = double(keys), first = last;
  if (args.causal) {
    first = double(keys - queries + begin + 1);
    last = double(keys - queries + end);
  }
  if (args.sliding_window) {
    const double seen = double(args.sliding_window) * (args.causal ? 1 : 2);
    first = std::min(first, seen);
    last = std::min(last, seen);
  }
  return (std::max(first, 0.0) + std::max(last, 0.0)) / 2 * double(end - begin);
}

struct Plan {
  std::vector<WorkItem> items;  // largest first
  int64_t largest_rows = 0;
};

// Cuts every request's rows into items: as large as packing wants (it is paid once per item and
// tile), as small as balance wants (eight items per thread).
Plan plan_work(const AttentionArgs& args, int64_t rows_per_block, int threads) {
  constexpr int64_t kFewestRows = 48, kItemsPerThread = 8;
  const int64_t most_rows = std::max<int64_t>(kFewestRows, 65536 / args.head_size);
  const int64_t group = args.num_heads / args.num_kv_heads;
  double total = 0;
  for (int64_t r = 0; r < args.num_requests; ++r) {
    const int64_t queries = args.query_start_loc[r + 1] - args.query_start_loc[r];
    total += work_of(args, queries, num_keys(args, r), 0, queries);
  }
  const double fair_share = total * args.num_kv_heads / double(kItemsPerThread * threads);
  std::vector<std::pair<double, WorkItem>> items;
  Plan plan;
  for (int64_t r = 0; r < args.num_requests; ++r) {
    const int64_t queries = args.query_start_loc[r + 1] - args.query_start_loc[r];
    if (queries == 0) continue;
    const int64_t keys = num_keys(args, r), rows = queries * group;
    const double work = std::max(work_of(args, queries, keys, 0, queries), 1.0);
    auto chunk = int64_t(double(rows) * std::min(1.0, fair_share / work));
    if (threads == 1) chunk = most_rows;
    chunk = std::clamp(chunk, kFewestRows, most_rows);
    // Whole blocks of rows, evenly filled.
    const int64_t pieces = (rows + chunk - 1) / chunk;
    chunk = (rows + pieces - 1) / pieces;
    chunk = (chunk + rows_per_block - 1) / rows_per_block * rows_per_block;
    for (int64_t begin = 0; begin < rows; begin += chunk) {
      const int64_t end = std::min(rows, begin + chunk);
      const double cost = work_of(args, queries, keys, begin / group, (end + group - 1) / group);
      plan.largest_rows = std::max(plan.largest_rows, end - begin);
      for (int64_t h = 0; h < args.num_kv_heads; ++h)
        items.push_back({cost, WorkItem{r, h, begin, end}});
    }
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  plan.items.reserve(items.size());
  for (const auto& [cost, item] : items) plan.items.push_back(item);
  return plan;
}

[[noreturn]] void bad(const std::string& argument, int64_t value, const std::string& expected) {
  throw std::invalid_argument(argument + ": " + std::to_string(value) + " is not valid: expected " +
                              expected);
}

std::string at(const char* name, int64_t i) {
  return std::string(name) + "[" + std::to_string(i) + "]";
}

void check_starts(const char* name, const int32_t* starts, int64_t requests, int64_t tokens) {
  if (starts[0] < 0) bad(at(name, 0), starts[0], "0 or more");
  for (int64_t r = 0; r < requests; ++r)
    if (starts[r + 1] < starts[r])
      bad(at(name, r + 1), starts[r + 1],
          "at least " + at(name, r) + " = " + std::to_string(starts[r]));
  if (starts[requests] > tokens)
    bad(at(name, requests), starts[requests],
        "at most the " + std::to_string(tokens) + " tokens given");
}

}  // namespace

void check_values(const AttentionArgs& args) {
  check_starts("query_start_loc", args.query_start_loc, args.num_requests, args.num_tokens);
  if (!args.paged) {
    if (args.key_start_loc)
      check_starts("key_start_loc", args.key_start_loc, args.num_requests, args.num_kv_tokens);
    else if (args.query_start_loc[args.num_requests] > args.num_kv_tokens &&
             args.query_start_loc[args.num_requests] > args.query_start_loc[0])
      bad(at("query_start_loc", args.num_requests), args.query_start_loc[args.num_requests],
          "at most the " + std::to_string(args.num_kv_tokens) + " keys given, or key_start_loc");
    return;
  }
  for (int64_t r = 0; r < args.num_requests; ++r) {
    const int64_t keys = args.seq_lens[r];
    if (keys < 0) bad(at("seq_lens", r), keys, "0 or more");
    const int64_t queries = args.query_start_loc[r + 1] - args.query_start_loc[r];
    if (queries == 0) continue;  // nothing is read
    if (args.causal && keys < queries)
      bad(at("seq_lens", r), keys,
          "at least the " + std::to_string(queries) + " query tokens of the request (causal)");
    const int64_t blocks = (keys + args.block_size - 1) / args.block_size;
    if (blocks > args.max_blocks)
      bad(at("seq_lens", r), keys,
          "at most the " + std::to_string(args.max_blocks * args.block_size) +
              " tokens that a row of block_table holds");
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t block = args.block_table[r * args.block_table_stride + b];
      if (block < 0 || block >= args.num_blocks)
        bad(at("block_table", r) + "[" + std::to_string(b) + "]", block,
            "a block of the cache, 0 to " + std::to_string(args.num_blocks - 1));
    }
  }
}

void attention_prefill(const std::string& isa, const AttentionArgs& args, int threads) {
  check_values(args);
  const AttentionKernels& kernels = *kernels_of(isa).attention;
  const Plan plan = plan_work(args, kernels.rows_per_block, threads);
  const int64_t bytes = kernels.scratch_bytes(args, plan.largest_rows);
  parallel_for(int64_t(plan.items.size()), threads,
               [&](int64_t i) { kernels.run(args, plan.items[size_t(i)], thread_scratch(bytes)); });
}

void merge_attention(const std::string& isa, const MergeArgs& args, int threads) {
  const AttentionKernels& kernels = *kernels_of(isa).attention;
  constexpr int64_t kTokens = 64;
  parallel_for((args.num_tokens + kTokens - 1) / kTokens, threads, [&](int64_t i) {
    kernels.merge(args, i * kTokens, std::min(args.num_tokens, (i + 1) * kTokens));
  });
}

}  // namespace hk::cpu
