// The calls that the bindings make: checks of values in host memory, then the work.
#pragma once

#include <string>
#include <vector>

#include "attention_args.hpp"

namespace hk::cpu {

// Instruction sets compiled in that this machine can run, best first.
std::vector<std::string> available_isas();

// Throws std::invalid_argument if the build lacks it.
const Kernels& kernels_of(const std::string& isa);

// Throws std::invalid_argument, naming the argument, if a value points outside what it indexes.
void check_values(const AttentionArgs& args);

void attention_prefill(const std::string& isa, const AttentionArgs& args, int threads);
void merge_attention(const std::string& isa, const MergeArgs& args, int threads);

}  // namespace hk::cpu
