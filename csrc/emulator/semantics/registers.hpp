// Checks register accesses: registers must be allocated, written before read, and not in flight.
#pragma once

#include "checks/findings.hpp"
#include "machine/wave_state.hpp"

namespace hk::emulator {

// Registers that the kernel's descriptor allocates (rsrc1, rsrc3: LLVM AMDGPU usage, "Kernel
// Descriptor").
struct RegisterLimits {
  uint16_t vgprs, agprs, sgprs;
  uint64_t no_sgprs[2];  // bits of the encodings of SGPRs that are not allocated
  static RegisterLimits of(const Kernel& kernel);
};

// Reports all faults of the operands of an instruction that is about to be issued. Throws Stop for
// a register that is not allocated.
void check_registers(WaveState& wave, const Prepared& p, uint32_t index,
                     const RegisterLimits& limits, Findings& findings);

// Marks the registers that an issued instruction writes as written. The caller marks results that
// are still to land.
void note_writes(WaveState& wave, const Prepared& p);

// Marks lanes of a vector register as written.
void note_written(WaveState& wave, int row, uint64_t lanes);

}  // namespace hk::emulator
