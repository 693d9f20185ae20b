// What an atomic instruction leaves in memory.
#pragma once

#include <cstdint>

#include "machine/prepared.hpp"

namespace hk::emulator {

// `bytes`: 4 or 8. `data`, `data2`: the instruction's; compare-and-swap of LDS compares with
// `data` and writes `data2`, that of global memory the other way round (its caller swaps them).
uint64_t apply_atomic(Atomic op, unsigned bytes, uint64_t memory, uint64_t data, uint64_t data2);

}  // namespace hk::emulator
