// Memory that a thread keeps for its next call, so that no call pays for fresh pages.
#pragma once

#include <cstdint>

namespace hk::cpu {

class Scratch {
 public:
  ~Scratch();
  // At least `bytes`, aligned to a cache line; what it held is lost when it grows.
  void* at_least(int64_t bytes);

 private:
  void* data_ = nullptr;
  int64_t size_ = 0;
};

// The calling thread's own, for one work item.
void* thread_scratch(int64_t bytes);

}  // namespace hk::cpu
