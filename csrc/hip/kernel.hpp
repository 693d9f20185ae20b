// One function of a module, ready to be launched on one device.
#pragma once

#include <cstddef>
#include <memory>

#include "grid.hpp"
#include "library.hpp"

namespace hk::hip {

struct Kernel {
  std::shared_ptr<Library> library;
  int device;
  Handle function;
  unsigned block;
  unsigned dynamic_lds;
  GridFunction grid;

  // Enqueues the kernel. Its device must be the thread's current one, and own the stream.
  void launch(Handle stream, const void* argument, size_t bytes) const {
    const Grid workgroups = grid.of(argument, bytes);
    library->launch(function, workgroups, block, dynamic_lds, stream, argument, bytes);
  }
};

// Throws unless `stream` belongs to `device`. A launch on another device's stream would fail late,
// or compute a wrong result.
void check_owner(const Library& library, Handle stream, int device);

}  // namespace hk::hip
