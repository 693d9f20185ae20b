#include "kernel.hpp"

#include <cstdio>
#include <stdexcept>

namespace hk::hip {

void Kernel::launch(Grid workgroups, Handle stream, const void* argument, size_t bytes) const {
  library->launch(function, workgroups, block, dynamic_lds, stream, argument, bytes);
}

Alternatives::Alternatives(const Kernels& kernels, const std::map<std::string, size_t>& of_step,
                           const Numbers& sizes) {
  if (kernels.empty()) throw std::invalid_argument("kernels: none");
  for (const std::shared_ptr<Kernel>& kernel : kernels) {
    if (kernel->device != kernels.front()->device)
      throw std::invalid_argument("kernels: of several devices");
    Bound& bound = kernels_.emplace_back(kernel);
    for (const std::string& name : kernel->grid.names()) {
      if (auto step = of_step.find(name); step != of_step.end())
        bound.values.emplace_back(true, int64_t(step->second));
      else if (auto size = sizes.find(name); size != sizes.end())
        bound.values.emplace_back(false, size->second);
      else if (auto own = kernel->constants.find(name); own != kernel->constants.end())
        bound.values.emplace_back(false, own->second);
      else
        throw std::invalid_argument("grid formula: no value for " + name);
    }
    if (bound.values.size() > kMostNames)
      throw std::invalid_argument("grid formula: too many names");
  }
}

Grid Alternatives::Bound::workgroups(const int64_t* step) const {
  int64_t found[kMostNames];
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& [of_step, value] = values[i];
    found[i] = of_step ? step[value] : value;
  }
  return kernel->grid.evaluate(found);
}

Alternatives::Choice Alternatives::choose(const int64_t* step) const {
  for (size_t i = 0;; ++i) {
    const Kernel& kernel = *kernels_[i].kernel;
    const Grid grid = kernels_[i].workgroups(step);
    const double workgroups = double(grid[0]) * grid[1] * grid[2];  // may exceed 64 bits
    if (i + 1 == kernels_.size() || workgroups >= 2.0 * kernel.compute_units) return {kernel, grid};
  }
}

void launch(const Kernels& kernels, Handle stream, const Numbers& sizes,
            const std::string& argument) {
  const Alternatives alternatives(kernels, {}, sizes);
  const auto [kernel, workgroups] = alternatives.choose(nullptr);
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
