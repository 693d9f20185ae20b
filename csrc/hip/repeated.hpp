// Launches that follow each other, prepared once and repeated on tensors of the same layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernel.hpp"
#include "slot.hpp"

namespace hk::hip {

class Repeated {
 public:
  // Writes the address of byte `byte` of tensor `tensor` at `offset` of the argument.
  struct Patch {
    size_t tensor, byte, offset;
  };
  struct Launch {
    std::shared_ptr<Kernel> kernel;
    std::string argument;
    std::vector<Patch> patches;
  };
  // All launches are on one device. `tensors`: layouts that the launches' tensors must have; null:
  // absent. The first `exact` of them must have just as many rows, the others at least as many.
  Repeated(const std::vector<Launch>& launches, const std::vector<std::optional<DLTensor>>& tensors,
           size_t exact, uintptr_t alignment);

  size_t tensors() const { return slots_.size(); }
  // Enqueues the launches on `stream`. `addresses`: addresses of the tensors on the device, if they
  // differ from the tensors' own. Returns false, and does nothing, for a tensor of another layout,
  // dtype or device, or a misaligned address.
  bool launch(Handle stream, const std::optional<DLTensor>* tensors,
              const int64_t* addresses) const;

 private:
  std::vector<Launch> launches_;
  std::vector<std::optional<Slot>> slots_;
  size_t exact_;
  uintptr_t alignment_;
};

}  // namespace hk::hip
