#include "kernel.hpp"

#include <cstring>
#include <stdexcept>

namespace hk::hip {
namespace {

constexpr size_t kLargestArgument = 1024;
constexpr size_t kMostNames = 16;

// A stream belongs to one device; to another's the launch would be an error late, or a wrong one.
void check_owner(const Library& library, Handle stream, int device) {
  const int owner = library.device_of(stream);
  if (owner == device) return;
  char handle[32];
  std::snprintf(handle, sizeof handle, "%#zx", size_t(stream));
  throw Unusable{std::string("stream ") + handle + " is of device " + std::to_string(owner) +
                 ", tensors of " + std::to_string(device)};
}

}  // namespace

void Kernel::launch(Handle stream, const Numbers& sizes, const std::string& argument) const {
  std::vector<int64_t> values;
  for (const std::string& name : grid.names()) {
    auto found = sizes.find(name);
    if (found == sizes.end()) {
      found = constants.find(name);
      if (found == constants.end())
        throw std::invalid_argument("grid formula: no value for " + name);
    }
    values.push_back(found->second);
  }
  const Grid workgroups = grid.evaluate(values.data());
  OnDevice on(*library, device);
  check_owner(*library, stream, device);
  library->launch(function, workgroups, block, dynamic_lds, stream, argument.data(),
                  argument.size());
}

Prepared::Prepared(std::shared_ptr<Kernel> kernel, std::string argument,
                   std::vector<Place> step_places, const std::map<std::string, size_t>& step_grid,
                   const Numbers& sizes, const std::vector<Tensor>& tensors, uintptr_t alignment)
    : kernel_(std::move(kernel)), argument_(std::move(argument)),
      step_places_(std::move(step_places)), alignment_(alignment) {
  if (argument_.size() > kLargestArgument) throw std::invalid_argument("argument: too large");
  for (const Place& place : step_places_)
    if (place.offset + place.bytes > argument_.size() || place.bytes > sizeof(int64_t))
      throw std::invalid_argument("a value of the step outside the argument");
  for (const std::string& name : kernel_->grid.names()) {
    if (auto step = step_grid.find(name); step != step_grid.end()) {
      if (step->second >= step_places_.size())
        throw std::invalid_argument("no such value: " + name);
      grid_values_.emplace_back(true, int64_t(step->second));
    } else if (auto size = sizes.find(name); size != sizes.end()) {
      grid_values_.emplace_back(false, size->second);
    } else if (auto known = kernel_->constants.find(name); known != kernel_->constants.end()) {
      grid_values_.emplace_back(false, known->second);
    } else {
      throw std::invalid_argument("grid formula: no value for " + name);
    }
  }
  if (grid_values_.size() > kMostNames) throw std::invalid_argument("grid formula: too many names");
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
  const Kernel& kernel = *kernel_;
  if (step.device != kernel.device || step.values.size() != step_places_.size()) return false;
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
  int64_t values[kMostNames];
  for (size_t i = 0; i < grid_values_.size(); ++i) {
    const auto& [of_step, value] = grid_values_[i];
    values[i] = of_step ? step.values[size_t(value)] : value;
  }
  const Grid workgroups = kernel.grid.evaluate(values);
  OnDevice on(*kernel.library, kernel.device);
  if (step.stream != stream) {
    check_owner(*kernel.library, stream, kernel.device);
    step.stream = stream;
  }
  kernel.library->launch(kernel.function, workgroups, kernel.block, kernel.dynamic_lds, stream,
                         argument, argument_.size());
  return true;
}

}  // namespace hk::hip
