// Loaded kernels, and the choice between those that compute the same.
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
  Numbers constants;  // that the grid's formula may name

  // Enqueues it; the thread's current device is the kernel's, and so is the stream.
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
  // What a grid's formula names is a value of an engine's step (`of_step` has its index), else one
  // of `sizes`, else a constant of the kernel.
  Alternatives(const Kernels& kernels, const std::map<std::string, size_t>& of_step,
               const Numbers& sizes);

  const Library& library() const { return *kernels_.front().kernel->library; }
  int device() const { return kernels_.front().kernel->device; }
  // The largest tile that still gives every compute unit two workgroups: a larger one reads less,
  // a smaller one leaves no unit idle. If none does, the smallest. `step`: the step's values.
  Choice choose(const int64_t* step) const;

 private:
  static constexpr size_t kMostNames = 16;
  struct Bound {
    std::shared_ptr<Kernel> kernel;
    std::vector<std::pair<bool, int64_t>> values;  // (of the step, its index) or a number
    Grid workgroups(const int64_t* step) const;
  };
  std::vector<Bound> kernels_;
};

// Enqueues one of `kernels` on a stream of their device; `sizes`: what the grids' formulas name.
void launch(const Kernels& kernels, Handle stream, const Numbers& sizes,
            const std::string& argument);

// A stream belongs to one device; to another's the launch would be an error late, or a wrong one.
void check_owner(const Library& library, Handle stream, int device);

}  // namespace hk::hip
