#include "recording.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace hk::hip {
namespace {

constexpr size_t kLargestArgument = 1024;

}  // namespace

Recording::Recording(std::vector<Launch> launches, const std::vector<Tensor>& tensors,
                     uintptr_t alignment)
    : launches_(std::move(launches)), alignment_(alignment) {
  if (launches_.empty()) throw std::invalid_argument("launches: none");
  if (tensors.size() > kMostTensors) throw std::invalid_argument("tensors: too many");
  for (const auto& [like, exact] : tensors) {
    if (like && like->ndim < 1) throw std::invalid_argument("a tensor without an axis");
    tensors_.push_back({like ? std::optional<Slot>(*like) : std::nullopt, exact});
  }
  for (const Launch& launch : launches_) {
    check(launch);
    for (const Value& value : launch.values) values_ = std::max(values_, value.value + 1);
  }
}

void Recording::check(const Launch& launch) const {
  const size_t bytes = launch.argument.size();
  if (bytes > kLargestArgument) throw std::invalid_argument("argument: too large");
  if (launch.kernel->device != launches_.front().kernel->device)
    throw std::invalid_argument("launches: of several devices");
  for (const Address& address : launch.addresses)
    if (address.tensor >= tensors_.size() || !tensors_[address.tensor].slot ||
        address.offset + sizeof(uintptr_t) > bytes)
      throw std::invalid_argument("a tensor outside the argument");
  for (const Value& value : launch.values)
    if (value.offset + value.bytes > bytes || value.bytes > sizeof(int64_t))
      throw std::invalid_argument("a value outside the argument");
}

bool Recording::Bound::fits(const std::optional<DLTensor>& tensor, uintptr_t alignment,
                            const Step* step) const {
  if (tensor.has_value() != slot.has_value()) return false;
  if (!slot) return true;
  if (!slot->fits(*tensor) || tensor->address() % alignment) return false;
  const int64_t rows = tensor->shape[0];
  return exact ? rows == slot->rows() : rows >= (step ? step->rows : slot->rows());
}

bool Recording::launch(Handle stream, const std::optional<DLTensor>* tensors,
                       const int64_t* addresses, Step* step) const {
  const Kernel& first = *launches_.front().kernel;
  if (step ? step->device != first.device || step->values.size() < values_ : values_ > 0)
    return false;
  uintptr_t found[kMostTensors];
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].fits(tensors[i], alignment_, step)) return false;
    if (tensors[i]) found[i] = addresses ? uintptr_t(addresses[i]) : tensors[i]->address();
  }
  OnDevice on(*first.library, first.device);
  if (!step || step->stream != stream) {
    check_owner(*first.library, stream, first.device);
    if (step) step->stream = stream;
  }
  std::byte argument[kLargestArgument];
  for (const Launch& launch : launches_) {
    std::memcpy(argument, launch.argument.data(), launch.argument.size());
    for (const auto& [tensor, byte, offset] : launch.addresses) {
      const uintptr_t address = found[tensor] + byte;
      std::memcpy(argument + offset, &address, sizeof address);
    }
    for (const auto& [value, offset, bytes] : launch.values)  // little-endian: low bytes come first
      std::memcpy(argument + offset, &step->values[value], bytes);
    launch.kernel->launch(stream, argument, launch.argument.size());
  }
  return true;
}

}  // namespace hk::hip
