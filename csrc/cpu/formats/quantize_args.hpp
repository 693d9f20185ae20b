// Arguments of one call of a quantising operator, as plain data, and an instruction set's
// functions.
#pragma once

#include "linear/linear_args.hpp"

namespace hk::cpu {

// Arguments that quantise x [m, k] to codes [m, k] (mx: [m, k * bits / 8] bytes), with one scale
// per group of group_rows x group_columns elements. The last group of either axis may be short.
struct QuantizeArgs {
  const void* x;
  int64_t x_row;  // stride in elements; columns are neighbours
  DType x_dtype;
  int64_t m, k;
  Format format;
  int64_t group_rows, group_columns;
  bool divide;            // fp8: divide by the scale instead of multiplying by its reciprocal
  int64_t rotation;       // mx: neighbours rotated together first: 32, 64 or 128; 0: none
  bool round_scale_even;  // mx: the largest value is rounded before its exponent is taken
  uint8_t* codes;
  float* scales;         // fp8: the kernel reads them
  uint8_t* scale_codes;  // mx: the kernel writes them
};

struct QuantizeKernels {
  // Writes the largest absolute value of each group of columns of one row; NaN if it holds NaN.
  void (*row_maxima)(const QuantizeArgs&, int64_t row, float* maxima);
  float (*fp8_scale)(Format, float top);
  void (*quantize_row)(const QuantizeArgs&, int64_t row);
};

}  // namespace hk::cpu
