// Loaded kernels, and the choice among kernels that compute the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grid.hpp"
#include "library.hpp"

namespace hk::hip {

// One function of a module on one device.
struct Kernel {
  std::shared_ptr<Library> library;
  int device;
  unsigned compute_units;  // of the device, which in a partition mode has only some of its GPU's
  Handle function;
  unsigned block;
  unsigned dynamic_lds;
  GridFunction grid;

  // Enqueues the kernel. Its device must be the thread's current one, and own the stream.
  void launch(Grid workgroups, Handle stream, const void* argument, size_t bytes) const;
};

using Kernels = std::vector<std::shared_ptr<Kernel>>;

// Kernels of one device that compute the same from the same argument, the largest tile first.
class Alternatives {
 public:
  struct Choice {
    const Kernel& kernel;
    Grid workgroups;
  };
  explicit Alternatives(const Kernels& kernels);

  const Library& library() const { return *kernels_.front()->library; }
  int device() const { return kernels_.front()->device; }
  // Chooses the largest tile that still gives every compute unit two workgroups, else the smallest.
  // A larger tile reads less memory; a smaller one leaves no unit idle.
  Choice choose(const void* argument, size_t bytes) const;

 private:
  Kernels kernels_;
};

// Enqueues one of `kernels` on a stream of their device.
void launch(const Kernels& kernels, Handle stream, const std::string& argument);

// Throws unless `stream` belongs to `device`. A launch on another device's stream would fail late,
// or compute a wrong result.
void check_owner(const Library& library, Handle stream, int device);

}  // namespace hk::hip
