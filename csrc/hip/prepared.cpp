#include "prepared.hpp"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace hk::hip {
namespace {

constexpr size_t kLargestArgument = 1024;

}  // namespace

Prepared::Prepared(const Kernels& kernels, std::string argument, std::vector<Place> step_places,
                   const std::vector<Tensor>& tensors, uintptr_t alignment)
    : kernels_(kernels), argument_(std::move(argument)), step_places_(std::move(step_places)),
      alignment_(alignment) {
  if (argument_.size() > kLargestArgument) throw std::invalid_argument("argument: too large");
  for (const Place& place : step_places_)
    if (place.offset + place.bytes > argument_.size() || place.bytes > sizeof(int64_t))
      throw std::invalid_argument("a value of the step outside the argument");
  for (const Tensor& tensor : tensors) {
    if (tensor.offset + sizeof(uintptr_t) > argument_.size() || tensor.like.ndim < 1)
      throw std::invalid_argument("a tensor outside the argument");
    tensors_.push_back({Slot(tensor.like), tensor.offset, tensor.exact});
  }
}

bool Prepared::launch(Step& step, Handle stream, const DLTensor* tensors,
                      const int64_t* addresses) const {
  if (step.device != kernels_.device() || step.values.size() != step_places_.size()) return false;
  std::byte argument[kLargestArgument];
  std::memcpy(argument, argument_.data(), argument_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto& [slot, offset, exact] = tensors_[i];
    const uintptr_t address = tensors[i].address();
    if (!slot.fits(tensors[i]) || address % alignment_) return false;
    const int64_t rows = tensors[i].shape[0];
    if (exact ? rows != slot.rows() : rows < step.rows) return false;
    const uintptr_t found = addresses ? uintptr_t(addresses[i]) : address;
    std::memcpy(argument + offset, &found, sizeof found);
  }
  for (size_t i = 0; i < step_places_.size(); ++i)  // little-endian: the low bytes come first
    std::memcpy(argument + step_places_[i].offset, &step.values[i], step_places_[i].bytes);
  const auto [kernel, workgroups] = kernels_.choose(argument, argument_.size());
  OnDevice on(kernels_.library(), kernels_.device());
  if (step.stream != stream) {
    check_owner(kernels_.library(), stream, kernels_.device());
    step.stream = stream;
  }
  kernel.launch(workgroups, stream, argument, argument_.size());
  return true;
}

}  // namespace hk::hip
