#include "prepared.hpp"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace hk::hip {
namespace {

constexpr size_t kLargestArgument = 1024;

}  // namespace

Prepared::Prepared(const Kernels& kernels, std::string argument, std::vector<Place> step_places,
                   const std::map<std::string, size_t>& step_grid, const Numbers& sizes,
                   const std::vector<Tensor>& tensors, uintptr_t alignment)
    : kernels_(kernels, step_grid, sizes), argument_(std::move(argument)),
      step_places_(std::move(step_places)), alignment_(alignment) {
  if (argument_.size() > kLargestArgument) throw std::invalid_argument("argument: too large");
  for (const Place& place : step_places_)
    if (place.offset + place.bytes > argument_.size() || place.bytes > sizeof(int64_t))
      throw std::invalid_argument("a value of the step outside the argument");
  for (const auto& [name, index] : step_grid)
    if (index >= step_places_.size()) throw std::invalid_argument("no such value: " + name);
  for (const Tensor& tensor : tensors) {
    if (tensor.offset + sizeof(uintptr_t) > argument_.size() || tensor.like.ndim < 1)
      throw std::invalid_argument("a tensor outside the argument");
    slots_.emplace_back(tensor);
  }
}

Prepared::Slot::Slot(const Tensor& tensor)
    : like(tensor.like), shape(like.shape, like.shape + like.ndim),
      strides(like.strides, like.strides + like.ndim), offset(tensor.offset), exact(tensor.exact) {
  like.shape = like.strides = nullptr;
}

bool Prepared::Slot::fits(const DLTensor& tensor, int64_t rows) const {
  if (tensor.ndim != like.ndim || tensor.dtype != like.dtype || tensor.device != like.device)
    return false;
  if (exact ? tensor.shape[0] != shape[0] : tensor.shape[0] < rows) return false;
  for (int32_t i = 0; i < like.ndim; ++i) {
    if (i && tensor.shape[i] != shape[i]) return false;
    // an axis of one element has any stride, and none that was prepared for
    if (tensor.shape[i] != 1 && (shape[i] == 1 || tensor.strides[i] != strides[i])) return false;
  }
  return true;
}

bool Prepared::launch(Step& step, Handle stream, const DLTensor* tensors,
                      const int64_t* addresses) const {
  if (step.device != kernels_.device() || step.values.size() != step_places_.size()) return false;
  std::byte argument[kLargestArgument];
  std::memcpy(argument, argument_.data(), argument_.size());
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const uintptr_t address = tensors[i].address();
    if (!slot.fits(tensors[i], step.rows) || address % alignment_) return false;
    const uintptr_t found = addresses ? uintptr_t(addresses[i]) : address;
    std::memcpy(argument + slot.offset, &found, sizeof found);
  }
  for (size_t i = 0; i < step_places_.size(); ++i)  // little-endian: the low bytes come first
    std::memcpy(argument + step_places_[i].offset, &step.values[i], step_places_[i].bytes);
  const auto [kernel, workgroups] = kernels_.choose(step.values.data());
  OnDevice on(kernels_.library(), kernels_.device());
  if (step.stream != stream) {
    check_owner(kernels_.library(), stream, kernels_.device());
    step.stream = stream;
  }
  kernel.launch(workgroups, stream, argument, argument_.size());
  return true;
}

}  // namespace hk::hip
