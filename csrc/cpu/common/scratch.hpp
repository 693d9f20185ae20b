// Memory that a thread keeps for its next call, so that calls do not pay for fresh pages.
#pragma once

#include <cstdint>

namespace hk::cpu {

class Scratch {
 public:
  ~Scratch();
  // Returns at least `bytes`, aligned to a cache line; growing loses the old content.
  void* at_least(int64_t bytes);

 private:
  void* data_ = nullptr;
  int64_t size_ = 0;
};

// Returns the calling thread's own memory, for one work item.
void* thread_scratch(int64_t bytes);

}  // namespace hk::cpu
