// Results of atomic instructions in memory.
#pragma once

#include <cstdint>

#include "machine/prepared.hpp"

namespace hk::emulator {

// Returns the new value of `memory`. `bytes`: 4 or 8. `data`, `data2`: operands of the instruction.
// Compare-and-swap of LDS compares with `data` and writes `data2`. In global memory it is the other
// way round; the caller swaps them.
uint64_t apply_atomic(Atomic op, unsigned bytes, uint64_t memory, uint64_t data, uint64_t data2);

}  // namespace hk::emulator
