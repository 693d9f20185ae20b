#pragma once

#include <cstdint>

#include "isa/instruction.hpp"
#include "machine/action.hpp"
#include "machine/memory_traits.hpp"

namespace hk::emulator {

// Kinds of instructions for which some later ones have to wait (hazards.cpp).
enum class Cause : uint8_t {
  valu,
  exec,    // vector instructions that write EXEC
  scalar,  // vector instructions that write any scalar register
  transcendental,
  dot,
  partial,
  long_store,
  matrix,
  accumulator  // matrix instructions that read theirs late
};
inline constexpr int kCauses = int(Cause::accumulator) + 1;

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
  uint8_t wait_states = 1;                       // wait states that it takes itself
  uint16_t causes = 0;                           // one bit for each Cause that it is
  int16_t set_register = -1, get_register = -1;  // hwreg id
};

HazardTraits hazard_traits(const Instruction& instruction, Action action,
                           const MemoryTraits& memory);

}  // namespace hk::emulator
