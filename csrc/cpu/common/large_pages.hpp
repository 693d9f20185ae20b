#pragma once

#include <cstdint>

namespace hk::cpu {

// Asks for pages of 2 MiB behind memory that is about to be written for the first time, and then
// streamed again and again: with 4 KiB pages, a third of a single-token multiply is page walks.
// A wish: where the system has none, nothing happens.
void prefer_large_pages(void* data, int64_t bytes);

}  // namespace hk::cpu
