// Launches that follow each other, recorded once and repeated with other tensors and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernel.hpp"
#include "slot.hpp"

namespace hk::hip {

inline constexpr size_t kMostTensors = 16;

// Data that the launches of one engine step share, on one device. `stream` is set once it is known
// to belong to the device.
struct Step {
  int device;
  std::vector<int64_t> values;
  int64_t rows;  // fewest rows that every tensor of tokens must have
  std::optional<Handle> stream = {};
};

class Recording {
 public:
  // Writes the address of byte `byte` of tensor `tensor` at `offset` of the argument.
  struct Address {
    size_t tensor, byte, offset;
  };
  // Writes the lowest `bytes` bytes of the step's value `value` at `offset` of the argument.
  struct Value {
    size_t value, offset, bytes;
  };
  struct Launch {
    std::shared_ptr<Kernel> kernel;
    std::string argument;
    std::vector<Address> addresses;
    std::vector<Value> values;
  };
  // A tensor that each repetition is given; no layout: it must be absent.
  struct Tensor {
    std::optional<DLTensor> like;
    bool exact;  // whether it has as many rows as `like`; else at least those of the step or `like`
  };
  // All launches are on one device.
  Recording(std::vector<Launch> launches, const std::vector<Tensor>& tensors, uintptr_t alignment);

  size_t tensors() const { return tensors_.size(); }
  // Enqueues the launches on `stream`. `addresses`: addresses of the tensors on the device, if they
  // differ from the tensors' own. `step`: null for launches without values. Returns false, and does
  // nothing, for a tensor of another layout, dtype or device, a misaligned address, or a step of
  // another device or with too few values.
  bool launch(Handle stream, const std::optional<DLTensor>* tensors, const int64_t* addresses,
              Step* step) const;

 private:
  struct Bound {
    std::optional<Slot> slot;
    bool exact;
    bool fits(const std::optional<DLTensor>& tensor, uintptr_t alignment, const Step* step) const;
  };
  std::vector<Launch> launches_;
  std::vector<Bound> tensors_;
  size_t values_ = 0;  // of a step
  uintptr_t alignment_;

  void check(const Launch& launch) const;
};

}  // namespace hk::hip
