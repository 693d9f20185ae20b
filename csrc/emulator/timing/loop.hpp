// Finds the main loop of a kernel in the trace of its waves.
#pragma once

#include <cstdint>

#include "machine/trace.hpp"

namespace hk::emulator::timing {

// Instructions [begin, end) of the program; empty without a loop.
struct Loop {
  uint32_t begin = 0, end = 0;
};

// The loop of the backward jump over the most instructions, counted as often as it was taken.
Loop steady_loop(const Trace& trace);

}  // namespace hk::emulator::timing
