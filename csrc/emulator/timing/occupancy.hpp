// Number of workgroups that fit on a CU.
#pragma once

#include <cstdint>

#include "machine/trace.hpp"
#include "timing/parameters.hpp"

namespace hk::emulator::timing {

inline constexpr uint32_t kSimds = 4;  // SIMDs of a CU

// Number of workgroups that fit on a CU at once. Throws std::invalid_argument if none fits.
uint32_t resident_workgroups(const Trace& trace, const Parameters& parameters);

}  // namespace hk::emulator::timing
