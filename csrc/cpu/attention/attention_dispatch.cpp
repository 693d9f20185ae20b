#include "attention/attention_dispatch.hpp"

#include <algorithm>
#include <stdexcept>

#include "attention/attention_plan.hpp"
#include "common/instruction_sets.hpp"
#include "common/parallel.hpp"
#include "common/scratch.hpp"

namespace hk::cpu {

namespace {

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
  for (int64_t r = 0; r < args.num_requests && args.max_query_len; ++r)
    if (const int64_t queries = args.query_start_loc[r + 1] - args.query_start_loc[r];
        queries > args.max_query_len)
      throw std::invalid_argument("query_start_loc: a request of " + std::to_string(queries) +
                                  " tokens is not valid: expected at most max_query_len, " +
                                  std::to_string(args.max_query_len));
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
    if (queries == 0) continue;  // a request without queries reads nothing
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

void attention_prefill(const std::string& isa, const AttentionArgs& args, int threads,
                       int64_t split_elements) {
  check_values(args);
  const AttentionKernels& kernels = *kernels_of(isa).attention;
  const Plan plan = plan_attention(args, kernels, threads, split_elements);
  const int64_t bytes = kernels.scratch_bytes(args, plan.largest_rows);
  thread_local Scratch memory;  // one for each calling thread, since calls may overlap
  auto* partials = static_cast<float*>(memory.at_least(4 * plan.partial_floats));
  parallel_for(int64_t(plan.items.size()), threads, [&, partials](int64_t i) {
    kernels.run(args, plan.items[size_t(i)], partials, thread_scratch(bytes));
  });
  parallel_for(int64_t(plan.joints.size()), threads, [&, partials](int64_t i) {
    kernels.join(args, plan.joints[size_t(i)], partials, thread_scratch(bytes));
  });
}

void merge_attention(const std::string& isa, const MergeArgs& args, int threads) {
  const AttentionKernels& kernels = *kernels_of(isa).attention;
  constexpr int64_t kTokens = 64;
  parallel_for((args.num_tokens + kTokens - 1) / kTokens, threads, [&](int64_t i) {
    kernels.merge(args, i * kTokens, std::min(args.num_tokens, (i + 1) * kTokens));
  });
}

}  // namespace hk::cpu
