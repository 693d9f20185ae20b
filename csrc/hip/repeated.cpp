#include "repeated.hpp"

#include <cstring>
#include <stdexcept>

namespace hk::hip {
namespace {

constexpr size_t kLargestArgument = 1024, kMostTensors = 16;

}  // namespace

Repeated::Repeated(const std::vector<Launch>& launches,
                   const std::vector<std::optional<DLTensor>>& tensors, size_t exact,
                   uintptr_t alignment)
    : launches_(launches), exact_(exact), alignment_(alignment) {
  if (launches.empty()) throw std::invalid_argument("launches: none");
  if (tensors.size() > kMostTensors) throw std::invalid_argument("tensors: too many");
  for (const Launch& launch : launches) {
    if (launch.argument.size() > kLargestArgument)
      throw std::invalid_argument("argument: too large");
    if (launch.kernel->device != launches.front().kernel->device)
      throw std::invalid_argument("launches: of several devices");
    for (const Patch& patch : launch.patches)
      if (patch.tensor >= tensors.size() || !tensors[patch.tensor] ||
          patch.offset + sizeof(uintptr_t) > launch.argument.size())
        throw std::invalid_argument("a tensor outside the argument");
  }
  for (const std::optional<DLTensor>& tensor : tensors) {
    if (tensor && tensor->ndim < 1) throw std::invalid_argument("a tensor without an axis");
    slots_.push_back(tensor ? std::optional<Slot>(*tensor) : std::nullopt);
  }
}

bool Repeated::launch(Handle stream, const std::optional<DLTensor>* tensors,
                      const int64_t* addresses) const {
  uintptr_t found[kMostTensors];
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (tensors[i].has_value() != slots_[i].has_value()) return false;
    if (!slots_[i]) continue;
    const Slot& slot = *slots_[i];
    const uintptr_t address = tensors[i]->address();
    if (!slot.fits(*tensors[i]) || address % alignment_) return false;
    const int64_t rows = tensors[i]->shape[0];
    if (i < exact_ ? rows != slot.rows() : rows < slot.rows()) return false;
    found[i] = addresses ? uintptr_t(addresses[i]) : address;
  }
  const Kernel& first = *launches_.front().kernel;
  OnDevice on(*first.library, first.device);
  check_owner(*first.library, stream, first.device);
  std::byte argument[kLargestArgument];
  for (const Launch& launch : launches_) {
    std::memcpy(argument, launch.argument.data(), launch.argument.size());
    for (const Patch& patch : launch.patches) {
      const uintptr_t address = found[patch.tensor] + patch.byte;
      std::memcpy(argument + patch.offset, &address, sizeof address);
    }
    const Grid workgroups = launch.kernel->grid.of(argument, launch.argument.size());
    launch.kernel->launch(workgroups, stream, argument, launch.argument.size());
  }
  return true;
}

}  // namespace hk::hip
