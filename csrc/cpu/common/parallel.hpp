// Runs a loop on the OpenMP threads that torch already has.
#pragma once

#include <cstdint>
#include <functional>

namespace hk::cpu {

// Calls body(i) for i in [0, count) on up to `threads` threads, next index to whoever is free,
// so put the largest work first. Serial where no OpenMP runtime is in the process.
void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& body);

}  // namespace hk::cpu
