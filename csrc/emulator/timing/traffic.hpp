// Bytes that a workgroup moves to and from memory, from its trace.
#pragma once

#include <vector>

#include "machine/trace.hpp"

namespace hk::emulator::timing {

struct Traffic {
  // Bytes that no other traced workgroup touches; `streamed`: those read by non-temporal loads.
  double read = 0, streamed = 0, written = 0;
};

// Traffic of each traced workgroup.
std::vector<Traffic> traffic(const Trace& trace);

}  // namespace hk::emulator::timing
