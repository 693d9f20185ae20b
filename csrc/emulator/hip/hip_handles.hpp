// Handles are the addresses of a list's elements, valid as long as the list has the element.
#pragma once

#include <algorithm>

#include "hip/hip_types.hpp"

namespace hk::emulator::hip {

// The iterator of the element of `list` that `handle` points to.
template <class List>
auto find_handle(List& list, const void* handle) {
  return std::find_if(list.begin(), list.end(), [&](auto& item) { return &item == handle; });
}

template <class List>
typename List::value_type& known(List& list, const void* handle, Error otherwise = kInvalidHandle) {
  auto found = find_handle(list, handle);
  if (found == list.end()) throw Failure{otherwise};
  return *found;
}

}  // namespace hk::emulator::hip
