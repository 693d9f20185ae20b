// torch brings an OpenMP runtime under a file name of its own, and binds its threads to cores. A
// second runtime, or our own threads, would compete with it for the same cores. So no runtime is
// linked: the code looks up GOMP_parallel among the symbols that the process already has. This
// entry point of libgomp's ABI exists in LLVM's and Intel's runtimes, too.

#include "common/parallel.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

namespace hk::cpu {
namespace {

using ParallelRegion = void (*)(void (*)(void*), void*, unsigned, unsigned);

ParallelRegion find_runtime() {
  if (void* found = dlsym(RTLD_DEFAULT, "GOMP_parallel"))
    return reinterpret_cast<ParallelRegion>(found);
  // torch may have been loaded with local symbols: search the dependencies of its own library.
  void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  return torch ? reinterpret_cast<ParallelRegion>(dlsym(torch, "GOMP_parallel")) : nullptr;
}

struct Loop {
  const std::function<void(int64_t)>& body;
  int64_t count;
  std::atomic<int64_t> next{0};
  std::once_flag failed;
  std::exception_ptr error;  // the first error; none may leave the region

  static void run(void* self) {
    auto& loop = *static_cast<Loop*>(self);
    try {
      for (int64_t i; (i = loop.next.fetch_add(1, std::memory_order_relaxed)) < loop.count;)
        loop.body(i);
    } catch (...) {
      std::call_once(loop.failed, [&] { loop.error = std::current_exception(); });
    }
  }
};

}  // namespace

void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& body) {
  static const ParallelRegion runtime = find_runtime();
  Loop loop{body, count, {}, {}, {}};
  const int64_t team = std::min<int64_t>(threads, count);
  if (runtime && team > 1)
    runtime(Loop::run, &loop, unsigned(team), 0);
  else
    Loop::run(&loop);
  if (loop.error) std::rethrow_exception(loop.error);
}

}  // namespace hk::cpu
