// Runs a loop on the OpenMP threads that torch already has.
#pragma once

#include <cstdint>
#include <functional>

namespace hk::cpu {

// Calls body(i) for i in [0, count) on up to `threads` threads. A free thread takes the next index,
// so the largest work should come first. Runs serially if the process has no OpenMP runtime.
void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& body);

}  // namespace hk::cpu
