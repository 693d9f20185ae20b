// A launch that is made once and repeated with other addresses and sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernel.hpp"
#include "slot.hpp"

namespace hk::hip {

// Data that the launches of one engine step share, on one device. `values` are those that each
// launch takes from the step, in the order given to `Prepared`. `stream` is set once it is known to
// belong to the device.
struct Step {
  int device;
  std::vector<int64_t> values;
  int64_t rows;  // fewest rows that every tensor of tokens must have
  std::optional<Handle> stream = {};
};

// A layer's launch. The argument's constants are in place; each launch patches in the step's values
// and the addresses of the layer's tensors.
class Prepared {
 public:
  struct Place {  // place in the argument
    size_t offset, bytes;
  };
  struct Tensor {
    DLTensor like;
    size_t offset;  // offset of its address in the argument
    bool exact;     // whether it needs as many rows as `like`; else at least those of the step
  };
  // `kernels`: each launch chooses one (`Alternatives`). `step_places`: place of each value of a
  // step; {0, 0}: not used.
  Prepared(const Kernels& kernels, std::string argument, std::vector<Place> step_places,
           const std::vector<Tensor>& tensors, uintptr_t alignment);

  size_t tensors() const { return tensors_.size(); }
  // Enqueues the launch on `stream`. `addresses`: addresses of the tensors on the device, if they
  // differ from the tensors' own. Returns false, and does nothing, for a tensor of another layout,
  // dtype or device, a misaligned address, or a step of another device.
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
