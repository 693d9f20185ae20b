// What a launch must know of a kernel and its code object's metadata do not say.
//
// Each kernel `name` has a constant `name_info` beside it; hk_backend/kernels/toolchain/build.py reads it
// from the code object into the catalogue.
#pragma once

#include "types/scalar.hpp"

namespace hk {

struct KernelInfo {
  i32 tile_rows;     // of the output, computed by one workgroup
  i32 tile_columns;  // attention: keys per step; GEMM: columns of the output
  i32 tile_depth;    // attention: head size; GEMM: length of the dot products per step
  u32 dynamic_lds;   // bytes
  i64 step_flops;    // useful matrix FLOPs of one wave in one step of the steady loop, e.g.
                     // attention: 4 * rows * keys * head size, with the wave's own rows
  // Workgroups as an expression: +, -, *, //, ceil_div(a, b), min, max, numbers, the fields of the
  // kernel's arguments and of this struct. One dimension, or up to three separated by commas.
  char grid[128];
};

}  // namespace hk

// The constant beside kernel `name`.
#define HK_KERNEL_INFO(name, ...) \
  extern "C" __attribute__((constant, used)) const hk::KernelInfo name##_info = __VA_ARGS__
