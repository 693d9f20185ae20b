// Workgroups of known length on the whole device.
#pragma once

#include <cstdint>
#include <span>

#include "timing/parameters.hpp"

namespace hk::emulator::timing {

struct DeviceTime {
  double clocks = 0;      // until the last workgroup ends
  double busy_share = 0;  // of all slots' clocks: in which a workgroup runs
  double first_idle = 0;  // when a slot has nothing left to do: from here on it is the tail
};

// Deals workgroups in the order of the grid round the XCDs; in each, the next one goes to the CU
// that has a free slot first. `lengths`: clocks of each workgroup with `slots` of them on a CU.
DeviceTime schedule(std::span<const double> lengths, uint32_t slots, const Parameters& parameters);

}  // namespace hk::emulator::timing
