#include "kernel.hpp"

#include <cstdio>
#include <stdexcept>

namespace hk::hip {

void Kernel::launch(Grid workgroups, Handle stream, const void* argument, size_t bytes) const {
  library->launch(function, workgroups, block, dynamic_lds, stream, argument, bytes);
}

Alternatives::Alternatives(const Kernels& kernels) : kernels_(kernels) {
  if (kernels.empty()) throw std::invalid_argument("kernels: none");
  for (const std::shared_ptr<Kernel>& kernel : kernels)
    if (kernel->device != kernels.front()->device)
      throw std::invalid_argument("kernels: of several devices");
}

Alternatives::Choice Alternatives::choose(const void* argument, size_t bytes) const {
  for (size_t i = 0;; ++i) {
    const Kernel& kernel = *kernels_[i];
    const Grid grid = kernel.grid.of(argument, bytes);
    const double workgroups = double(grid[0]) * grid[1] * grid[2];  // may exceed 64 bits
    if (i + 1 == kernels_.size() || workgroups >= 2.0 * kernel.compute_units) return {kernel, grid};
  }
}

void launch(const Kernels& kernels, Handle stream, const std::string& argument) {
  const Alternatives alternatives(kernels);
  const auto [kernel, workgroups] = alternatives.choose(argument.data(), argument.size());
  OnDevice on(alternatives.library(), alternatives.device());
  check_owner(alternatives.library(), stream, alternatives.device());
  kernel.launch(workgroups, stream, argument.data(), argument.size());
}

void check_owner(const Library& library, Handle stream, int device) {
  const int owner = library.device_of(stream);
  if (owner == device) return;
  char handle[32];
  std::snprintf(handle, sizeof handle, "%#zx", size_t(stream));
  throw Unusable{std::string("stream ") + handle + " is of device " + std::to_string(owner) +
                 ", tensors of " + std::to_string(device)};
}

}  // namespace hk::hip
