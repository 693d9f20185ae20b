// What a tensor of a launch must be like to take another's place in its argument.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor.hpp"

namespace hk::hip {

class Slot {
 public:
  explicit Slot(const DLTensor& like)
      : like_(like), shape_(like.shape, like.shape + like.ndim),
        strides_(like.strides, like.strides + like.ndim) {
    like_.shape = like_.strides = nullptr;
  }

  // Of the same dtype, device and layout, but for the length of the first axis.
  bool fits(const DLTensor& tensor) const {
    if (tensor.ndim != like_.ndim || tensor.dtype != like_.dtype || tensor.device != like_.device)
      return false;
    for (int32_t i = 0; i < like_.ndim; ++i) {
      if (i && tensor.shape[i] != shape_[i]) return false;
      // an axis of one element has any stride, and none that was prepared for
      if (tensor.shape[i] != 1 && (shape_[i] == 1 || tensor.strides[i] != strides_[i]))
        return false;
    }
    return true;
  }
  int64_t rows() const { return shape_[0]; }

 private:
  DLTensor like_;  // without shape and strides
  std::vector<int64_t> shape_, strides_;
};

}  // namespace hk::hip
