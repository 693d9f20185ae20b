// Workgroups of known length on the whole device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "timing/parameters.hpp"

namespace hk::emulator::timing {

struct DeviceTime {
  double clocks = 0;      // until the last workgroup ends
  double busy_share = 0;  // of all slots' clocks: in which a workgroup runs
  // Where each workgroup runs: CU * slots + slot.
  std::vector<uint32_t> places;
};

// Deals workgroups in the order of the grid round the XCDs; in each, the next one goes to the slot
// that is free first, and of those that are equally so to the CU with the fewest workgroups.
// `lengths`: clocks of each workgroup with `slots` of them on a CU.
DeviceTime schedule(std::span<const double> lengths, uint32_t slots, const Parameters& parameters);

}  // namespace hk::emulator::timing
