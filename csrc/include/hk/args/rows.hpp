// Leading members of the argument struct of an operator that works on a matrix: plain C++ for host
// and device.
//
// A struct for such an operator has these two members first, and names the grid function "rows". A
// workgroup computes a tile of the matrix, in x by rows and in y by columns.
#pragma once

#include "../types/scalar.hpp"
#include "workgroups.hpp"

namespace hk {

struct RowsArgs {
  i32 rows, columns;
};

constexpr Workgroups workgroups(const RowsArgs& args, TileSize tile) {
  return {tiles(args.rows, tile.rows), tiles(args.columns, tile.columns)};
}

}  // namespace hk
