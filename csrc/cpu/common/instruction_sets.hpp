// Tables of the host kernels: one for each instruction set, chosen by name at run time.
#pragma once

#include <string>
#include <vector>

namespace hk::cpu {

struct AttentionKernels;
struct LinearKernels;
struct QuantizeKernels;
struct BoundKernels;

// Kernels of one instruction set, by operator. attention_args.hpp, linear_args.hpp,
// quantize_args.hpp and bounds.hpp declare the types.
struct Kernels {
  const AttentionKernels* attention;
  const LinearKernels* linear;
  const QuantizeKernels* quantize;
  const BoundKernels* bounds;
};

// Instruction sets of this build that this machine can run, best first.
std::vector<std::string> available_isas();

// Instruction sets of this architecture without kernels in this build, best first.
std::vector<std::string> left_out_isas();

// Whether AVX-512 kernels use dot products of integers: if the processor has them (VNNI), unless
// `use_dot_products(false)` was called. `use_dot_products` returns the previous setting.
bool has_dot_products();
bool use_dot_products(bool use);

// Throws std::invalid_argument if the build lacks the instruction set.
const Kernels& kernels_of(const std::string& isa);

}  // namespace hk::cpu
