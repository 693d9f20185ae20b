// Bounds on the speed of a multiply with few rows: three kinds of work, each done alone, so that
// a benchmark can time it beside the multiply (hk_backend.lab.bench.linear).
#pragma once

#include <string>

#include "linear/linear_args.hpp"

namespace hk::cpu {

// Reads `bytes` (whole 64-byte lines) once.
void read_bytes(const std::string& isa, const uint8_t* data, int64_t bytes, int threads);
// Executes at least `count` multiply-adds of single elements in registers, shared by the threads.
void multiply_add(const std::string& isa, int64_t count, int threads);
// Expands a packed weight [n, k] to float32 in registers, `repeats` times, shared by the threads.
void expand_weight(const std::string& isa, Format format, int64_t n, int64_t k,
                   const uint8_t* weight, int64_t repeats, int threads);

struct BoundKernels {
  void (*read)(const uint8_t* data, int64_t bytes);
  void (*multiply_add)(int64_t count);
  void (*expand)(Format, int64_t n, int64_t k, const uint8_t* weight);
};

}  // namespace hk::cpu
