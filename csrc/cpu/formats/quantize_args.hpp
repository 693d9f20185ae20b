// One call of the quantising operators as plain data, and what an instruction set brings to them.
#pragma once

#include "linear/linear_args.hpp"

namespace hk::cpu {

// x [m, k] to codes [m, k] (mx: [m, k * bits / 8] bytes) and one scale per group of
// group_rows x group_columns elements; the last group of either axis may be short.
struct QuantizeArgs {
  const void* x;
  int64_t x_row;  // stride in elements; columns are neighbours
  DType x_dtype;
  int64_t m, k;
  Format format;
  int64_t group_rows, group_columns;
  bool divide;            // fp8: by the scale; else multiply by its reciprocal
  int64_t rotation;       // mx: neighbours that are rotated first: 32, 64, 128, or 0
  bool round_scale_even;  // mx: the largest value is rounded before its exponent is taken
  uint8_t* codes;
  float* scales;         // fp8: read
  uint8_t* scale_codes;  // mx: written
};

struct QuantizeKernels {
  // Of each group of columns of one row: the largest absolute value, NaN if it holds one.
  void (*row_maxima)(const QuantizeArgs&, int64_t row, float* maxima);
  float (*fp8_scale)(Format, float top);
  void (*quantize_row)(const QuantizeArgs&, int64_t row);
};

}  // namespace hk::cpu
