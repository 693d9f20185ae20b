#include "common/scratch.hpp"

#include <cstdlib>
#include <new>

namespace hk::cpu {

Scratch::~Scratch() { std::free(data_); }

void* Scratch::at_least(int64_t bytes) {
  if (size_ < bytes) {
    std::free(data_);
    size_ = (bytes + 63) / 64 * 64;
    data_ = std::aligned_alloc(64, size_t(size_));
    if (!data_) {
      size_ = 0;
      throw std::bad_alloc();
    }
  }
  return data_;
}

void* thread_scratch(int64_t bytes) {
  thread_local Scratch scratch;
  return scratch.at_least(bytes);
}

}  // namespace hk::cpu
