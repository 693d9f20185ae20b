#include "common/large_pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace hk::cpu {

void prefer_large_pages(void* data, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (uintptr_t(data) + page - 1) / page * page;
  const uintptr_t end = (uintptr_t(data) + uintptr_t(bytes)) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

}  // namespace hk::cpu
