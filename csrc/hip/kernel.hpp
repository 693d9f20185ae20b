// Loaded kernels, and the choice among kernels that compute the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grid.hpp"
#include "library.hpp"

namespace hk::hip {

using Numbers = std::map<std::string, int64_t>;

// One function of a module on one device.
struct Kernel {
  std::shared_ptr<Library> library;
  int device;
  unsigned compute_units;  // of the device, which in a partition mode has only some of its GPU's
  Handle function;
  unsigned block;
  unsigned dynamic_lds;
  GridProgram grid;
  Numbers constants;  // values of the grid formula's constant names

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
  // Each name in a grid formula takes its value from the engine's step (`of_step` has its index),
  // else from `sizes`, else from the kernel's constants.
  Alternatives(const Kernels& kernels, const std::map<std::string, size_t>& of_step,
               const Numbers& sizes);

  const Library& library() const { return *kernels_.front().kernel->library; }
  int device() const { return kernels_.front().kernel->device; }
  // Chooses the largest tile that still gives every compute unit two workgroups, else the smallest.
  // A larger tile reads less memory; a smaller one leaves no unit idle. `step`: the step's values.
  Choice choose(const int64_t* step) const;

 private:
  static constexpr size_t kMostNames = 16;
  struct Bound {
    std::shared_ptr<Kernel> kernel;
    std::vector<std::pair<bool, int64_t>> values;  // (is a step's value, its index) or a number
    Grid workgroups(const int64_t* step) const;
  };
  std::vector<Bound> kernels_;
};

// Enqueues one of `kernels` on a stream of their device; `sizes` has the grid formulas' values.
void launch(const Kernels& kernels, Handle stream, const Numbers& sizes,
            const std::string& argument);

// Throws unless `stream` belongs to `device`. A launch on another device's stream would fail late,
// or compute a wrong result.
void check_owner(const Library& library, Handle stream, int device);

}  // namespace hk::hip
