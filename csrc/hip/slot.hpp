// The layout that a tensor must have to take another tensor's place in a launch's argument.
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

  // Whether the tensor has this dtype, device and layout; the first axis may have any length.
  bool fits(const DLTensor& tensor) const {
    if (tensor.ndim != like_.ndim || tensor.dtype != like_.dtype || tensor.device != like_.device)
      return false;
    for (int32_t i = 0; i < like_.ndim; ++i) {
      if (i && tensor.shape[i] != shape_[i]) return false;
      // an axis of one element may have any stride, which tells nothing for longer ones
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
