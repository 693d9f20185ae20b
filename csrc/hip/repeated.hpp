// Launches that follow each other, made once and repeated on other tensors of the same layout.
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
  // Where in the argument the address of a byte of a tensor goes.
  struct Patch {
    size_t tensor, byte, offset;
  };
  struct Launch {
    std::shared_ptr<Kernel> kernel;
    Numbers sizes;  // that the grid's formula names
    std::string argument;
    std::vector<Patch> patches;
  };
  // All on one device. `tensors`: what the launches' tensors must be like; null: absent. The first
  // `exact` of them must have just as many rows, the others at least.
  Repeated(const std::vector<Launch>& launches, const std::vector<std::optional<DLTensor>>& tensors,
           size_t exact, uintptr_t alignment);

  size_t tensors() const { return slots_.size(); }
  // Enqueues them on `stream`. `addresses`: where the device finds the tensors, if not where they
  // say. False, and nothing has been done: a tensor of another layout, dtype or device, or an
  // address that is not aligned.
  bool launch(Handle stream, const std::optional<DLTensor>* tensors,
              const int64_t* addresses) const;

 private:
  struct Bound {
    Launch launch;
    Grid workgroups;
  };
  std::vector<Bound> launches_;
  std::vector<std::optional<Slot>> slots_;
  size_t exact_;
  uintptr_t alignment_;
};

}  // namespace hk::hip
