// The timing of one workgroup: its waves, and how many of them run and wait at a barrier.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "timing/wave_clock.hpp"

namespace hk::emulator::timing {

struct GroupClock {
  uint32_t running = 0, arrived = 0;
  uint64_t stored = 0;  // clock at which the stores of its ended waves are done
  std::vector<std::unique_ptr<WaveClock>> waves;
};

}  // namespace hk::emulator::timing
