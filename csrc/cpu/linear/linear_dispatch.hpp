// Functions that the bindings call for the linear operator.
#pragma once

#include <string>

#include "linear/linear_args.hpp"

namespace hk::cpu {

// Number of bytes of a packed weight [n, k].
int64_t packed_bytes(const std::string& isa, Format format, int64_t n, int64_t k);
void pack_weight(const std::string& isa, const PackArgs& args, int threads);
void linear(const std::string& isa, const LinearArgs& args, int threads);
void look_up(const std::string& isa, const RowsArgs& args, int threads);

}  // namespace hk::cpu
