// Number of workgroups of a launch: plain C++ for host and device.
//
// Beside each argument struct lies a function `workgroups`, which computes it from the argument and
// the kernel's tile.
#pragma once

#include "../types/scalar.hpp"

namespace hk {

struct Workgroups {
  i64 x, y = 1, z = 1;
};

// Part of the output that one workgroup computes (kernel_info.hpp).
struct TileSize {
  i32 rows, columns, depth;
};

// How many tiles of `size` cover `length`.
constexpr i64 tiles(i64 length, i64 size) { return (length + size - 1) / size; }

}  // namespace hk
