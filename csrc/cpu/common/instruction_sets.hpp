// The host kernels: one table per instruction set, chosen at run time by name.
#pragma once

#include <string>
#include <vector>

namespace hk::cpu {

struct AttentionKernels;
struct LinearKernels;
struct QuantizeKernels;
struct BoundKernels;

// The kernels of one instruction set, by operator: attention_args.hpp, linear_args.hpp,
// quantize_args.hpp and bounds.hpp declare them.
struct Kernels {
  const AttentionKernels* attention;
  const LinearKernels* linear;
  const QuantizeKernels* quantize;
  const BoundKernels* bounds;
};

// Instruction sets compiled in that this machine can run, best first.
std::vector<std::string> available_isas();

// Instruction sets of this architecture that this build has no kernels for, best first.
std::vector<std::string> left_out_isas();

// Whether kernels for AVX-512 may use dot products of integers: where the processor has them (VNNI),
// unless it was told not to. `use_dot_products` returns what it was.
bool has_dot_products();
bool use_dot_products(bool use);

// Throws std::invalid_argument if the build lacks it.
const Kernels& kernels_of(const std::string& isa);

}  // namespace hk::cpu
