// Workgroups of a launch, by the name that a kernel gives their function (hk::KernelInfo).
#pragma once

#include <cstddef>
#include <string>

#include "hk/args/workgroups.hpp"
#include "library.hpp"

namespace hk::hip {

class GridFunction {
 public:
  // Throws if there is no function `name`, or the tile has no rows or columns.
  GridFunction(const std::string& name, TileSize tile);
  // Workgroups in x, y and z. Throws unless each fits 32 bits, and the function takes the size.
  Grid of(const void* argument, size_t bytes) const;

 private:
  size_t bytes_;  // of the argument
  bool more_;     // whether it may be longer
  Workgroups (*workgroups_)(const void* argument, TileSize tile);
  TileSize tile_;
};

}  // namespace hk::hip
