// Traces that somebody else recorded, on a GPU for example: the instructions of each wave in order.
#pragma once

#include <cstdint>
#include <vector>

#include "loader/code_object.hpp"
#include "machine/trace.hpp"

namespace hk::emulator::timing {

struct RecordedStep {
  uint32_t pc;  // byte offset in .text
  // Facts that the program does not show, as in TraceStep.
  uint32_t taken, needed, shared;
};

using RecordedWave = std::vector<RecordedStep>;
using RecordedWorkgroup = std::vector<RecordedWave>;

// The trace of these workgroups. Throws std::invalid_argument if a step begins no instruction, has
// a fact that does not fit, or if a wave does not end with s_endpgm.
Trace recorded_trace(const Kernel& kernel, const std::vector<RecordedWorkgroup>& workgroups);

}  // namespace hk::emulator::timing
