// A launch that is made once and repeated with other addresses and sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernel.hpp"
#include "slot.hpp"

namespace hk::hip {

// What the launches of an engine's step share, on one device: the values that each launch takes
// from it, in the order that `Prepared` was given, and the stream, once it is known to be the
// device's.
struct Step {
  int device;
  std::vector<int64_t> values;
  int64_t rows;  // that every tensor of tokens must have, at least
  std::optional<Handle> stream = {};
};

// A layer's launch: the argument's constants are in place, a step's values and the addresses of
// the layer's tensors are patched into it.
class Prepared {
 public:
  struct Place {  // in the argument
    size_t offset, bytes;
  };
  struct Tensor {
    DLTensor like;
    size_t offset;  // of its address in the argument
    bool exact;     // as many rows as `like`; else at least those of the step
  };
  // `kernels`: each launch takes one (`Alternatives`). `step_places`: where each value of a step
  // goes, {0, 0}: nowhere. `step_grid`: the grids' names that are values of the step, by index; the
  // others are in `sizes`.
  Prepared(const Kernels& kernels, std::string argument, std::vector<Place> step_places,
           const std::map<std::string, size_t>& step_grid, const Numbers& sizes,
           const std::vector<Tensor>& tensors, uintptr_t alignment);

  size_t tensors() const { return tensors_.size(); }
  // Enqueues it on `stream`. `addresses`: where the device finds the tensors, if not where they
  // say. False, and nothing has been done: a tensor of another layout, dtype or device, an
  // address that is not aligned, or a step of another device.
  bool launch(Step& step, Handle stream, const DLTensor* tensors, const int64_t* addresses) const;

 private:
  struct Bound {
    Slot slot;
    size_t offset;
    bool exact;
  };
  Alternatives kernels_;
  std::string argument_;
  std::vector<Place> step_places_;
  std::vector<Bound> tensors_;
  uintptr_t alignment_;
};

}  // namespace hk::hip
