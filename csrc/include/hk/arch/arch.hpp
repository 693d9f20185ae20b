// Selects the arch that is compiled for: the only #if of the tile language.
#pragma once

#if defined(__gfx950__)
#include "gfx950.hpp"
#elif defined(__gfx942__)
#include "gfx942.hpp"
#else
#error "hk: compile with --offload-arch=gfx950 or gfx942"
#endif
