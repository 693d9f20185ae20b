// Functions that the bindings call: they check values in host memory, then do the work.
#pragma once

#include <string>

#include "attention/attention_args.hpp"

namespace hk::cpu {

// Throws std::invalid_argument, naming the argument, if a value points outside what it indexes.
void check_values(const AttentionArgs& args);

void attention_prefill(const std::string& isa, const AttentionArgs& args, int threads,
                       int64_t split_elements);
void merge_attention(const std::string& isa, const MergeArgs& args, int threads);

}  // namespace hk::cpu
