// Facts about a kernel that its launch needs and its code object's metadata do not have.
//
// Each kernel `name` has a constant `name_info` beside it; hk_backend/lab/toolchain/build.py
// reads it from the code object into the catalogue, member by member.
#pragma once

#include "arch/arch.hpp"
#include "types/scalar.hpp"

namespace hk {

// Facts that tell an operator's kernels apart, and select one of them: numbers, bools and text.
// Element types and formats have the names that the catalogue knows: bf16, f16.
struct NoFacts {};

struct AttentionFacts {
  char dtype[16];
  i32 head_size;
  char keys[16];    // how keys and values lie: the name of a row source (types/row_source.hpp)
  char stored[16];  // what their elements are in memory: dtype, or an FP8 format
  char mask[16];    // what rows see: the name of a mask (kernels/attention/mask.hpp)
  bool padded;      // for any multiple of 8 channels up to head_size
};

struct GemmFacts {
  char a[16], b[16];  // elements of activations and weights
  char scales[16];    // vectors: of whole rows; blocks: of 128 x 128 weights and 128 activations
};

// Figures that a build of the kernel must reach, besides no spill and no scratch
// (tests/kernels/test_bars.py).
struct Bars {
  i32 waves_per_simd = 0;
  i32 useful_percent = 0;  // of the steady loop's clocks, in useful matrix work of one wave
};

template <class Facts = NoFacts>
struct KernelInfo {
  i32 tile_rows;     // of the output, computed by one workgroup
  i32 tile_columns;  // attention: keys per step; GEMM: columns of the output
  i32 tile_depth;    // attention: head size; GEMM: length of the dot products per step
  u32 dynamic_lds;   // bytes
  i64 step_flops;    // useful matrix FLOPs of one wave in one step of the steady loop, e.g.
                     // attention: 4 * rows * keys * head size, with the wave's own rows
  char grid[32];     // name of the function for the workgroups of a launch (csrc/hip/grid.cpp)
  char operator_name[32];  // what it computes: the family whose index lists it
  Facts facts = {};
  Bars bars = {};
};

// Whether `name` is one of `list`, names with commas between them.
constexpr bool is_listed(const char* name, const char* list) {
  for (bool begins = true; *list; ++list) {
    const char *one = name, *other = list;
    while (*one && *one == *other) ++one, ++other;
    if (begins && !*one && (!*other || *other == ',')) return true;
    begins = *list == ' ' || *list == ',';
  }
  return false;
}

}  // namespace hk

// The arches that a source is built for. The build reads this line and skips the source for any
// other arch; the compiler refuses to compile it for one.
#define HK_ARCHES(...)                                        \
  static_assert(hk::is_listed(hk::arch::kName, #__VA_ARGS__), \
                "this source is built for " #__VA_ARGS__ " alone (HK_ARCHES)")

// The constant beside kernel `name`.
#define HK_KERNEL_INFO(name, ...) \
  extern "C" __attribute__((constant, used)) const auto name##_info = __VA_ARGS__
