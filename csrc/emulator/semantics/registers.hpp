// Checks of register accesses: allocated, written before read, not in flight.
#pragma once

#include "checks/findings.hpp"
#include "machine/wave_state.hpp"

namespace hk::emulator {

// What the kernel's descriptor allocates (rsrc1, rsrc3: LLVM AMDGPU usage, "Kernel Descriptor").
struct RegisterLimits {
  uint16_t vgprs, agprs, sgprs;
  static RegisterLimits of(const Kernel& kernel);
};

// Everything wrong with the operands of an instruction that is about to be issued.
// Throws Stop for a register that is not allocated.
void check_registers(WaveState& wave, const Prepared& p, uint32_t index,
                     const RegisterLimits& limits, Findings& findings);

// The instruction has been issued: what it writes counts as written. Results that are still to
// land are marked by the caller.
void note_writes(WaveState& wave, const Prepared& p);

// Lanes of a vector register count as written.
void note_written(WaveState& wave, int row, uint64_t lanes);

}  // namespace hk::emulator
