// The loop of a kernel, from what its waves executed.
#pragma once

#include <cstdint>

#include "machine/trace.hpp"

namespace hk::emulator::timing {

// Instructions [begin, end) of the program; empty without a loop.
struct Loop {
  uint32_t begin = 0, end = 0;
};

// Of the jumps back, the one over most instructions, counted as often as it was taken.
Loop steady_loop(const Trace& trace);

}  // namespace hk::emulator::timing
