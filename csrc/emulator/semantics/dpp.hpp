// DPP: the lanes whose values lanes read.
#pragma once

#include <cstdint>

namespace hk::emulator {

// The lane that each lane reads, or -1. Throws Unsupported for an unknown dpp_ctrl.
const int8_t* dpp_sources(uint32_t control);

}  // namespace hk::emulator
