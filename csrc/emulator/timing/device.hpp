// Schedules workgroups of known length on the whole device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "timing/parameters.hpp"

namespace hk::emulator::timing {

struct DeviceTime {
  double clocks = 0;      // clocks until the last workgroup ends
  double busy_share = 0;  // share of all slots' clocks in which a workgroup runs
  // Place of each workgroup: CU * slots + slot.
  std::vector<uint32_t> places;
};

// Deals workgroups in the order of the grid to the XCDs in turn. In an XCD, a workgroup goes to the
// slot that is free first; among equal slots, to the CU with the fewest workgroups.
// `lengths`: clocks of each workgroup with `slots` of them on a CU.
DeviceTime schedule(std::span<const double> lengths, uint32_t slots, const Parameters& parameters);

}  // namespace hk::emulator::timing
