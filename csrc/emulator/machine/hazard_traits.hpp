#pragma once

#include <cstdint>

#include "isa/instruction.hpp"
#include "machine/action.hpp"
#include "machine/memory_traits.hpp"

namespace hk::emulator {

// Facts about an instruction that decide which wait states it needs or causes (hazards.cpp).
struct HazardTraits {
  bool valu = false;  // without matrix instructions
  bool transcendental = false, dot = false, dpp = false;
  bool partial = false;  // writes half a register
  bool matrix = false, xdl = false, f64 = false;
  bool lane_access = false;  // v_readlane, v_readfirstlane, v_writelane
  bool permlane_swap = false, div_fmas = false, reads_m0_late = false;
  bool vector_memory = false, lds = false;
  bool long_store = false;                       // more than 8 bytes, so that data are read late
  uint8_t passes = 0;                            // passes of a matrix instruction, 4 clocks each
  int16_t set_register = -1, get_register = -1;  // hwreg id
};

HazardTraits hazard_traits(const Instruction& instruction, Action action,
                           const MemoryTraits& memory);

}  // namespace hk::emulator
