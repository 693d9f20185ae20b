// The one argument of the gemm kernels, passed by value: plain C++ for host and device.
//
// Rows are contiguous and start at multiples of 16 bytes: pointers are 16-byte aligned, strides
// (in elements) multiples of 8, at least the row's length and below 2^22. Rows of a and b are
// allocated up to the 16 bytes that hold their end; what lies there past k does not matter.
// Nothing but c's m x n elements is written.
#pragma once

#include "../types/scalar.hpp"

namespace hk {

struct GemmArgs {
  const void* a;  // [m, k]
  const void* b;  // [n, k]
  void* c;        // [m, n] = a b^T
  i64 a_row;
  i64 b_row;
  i64 c_row;
  i32 m, n, k;
};

}  // namespace hk
