// The table of one instruction set's kernels.

#include "common/instruction_sets.hpp"

namespace hk::cpu::HK_ISA {

extern const AttentionKernels attention_kernels;
extern const LinearKernels linear_kernels;
extern const QuantizeKernels quantize_kernels;
extern const BoundKernels bound_kernels;

extern const Kernels kernels;
const Kernels kernels{&attention_kernels, &linear_kernels, &quantize_kernels, &bound_kernels};

}  // namespace hk::cpu::HK_ISA
