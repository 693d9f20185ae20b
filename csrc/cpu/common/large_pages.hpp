#pragma once

#include <cstdint>

namespace hk::cpu {

// Asks for pages of 2 MiB for memory that is about to be written for the first time, and then
// streamed again and again. With 4 KiB pages, a third of a single-token multiply is page walks.
// Has no effect where the system has no large pages.
void prefer_large_pages(void* data, int64_t bytes);

}  // namespace hk::cpu
