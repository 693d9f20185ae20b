// Functions that the bindings call for the quantising operators.
#pragma once

#include <string>

#include "formats/quantize_args.hpp"

namespace hk::cpu {

// Quantises to FP8; `dynamic`: computes and writes the scales first.
void quantize_fp8(const std::string& isa, const QuantizeArgs& args, bool dynamic, int threads);
void quantize_mx(const std::string& isa, const QuantizeArgs& args, int threads);

}  // namespace hk::cpu
