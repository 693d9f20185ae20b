// Addresses of each lane of a vector memory instruction, and the bytes of its access in range.
#pragma once

#include "machine/workgroup.hpp"

namespace hk::emulator {

struct Addresses {
  Address at[kLanes];             // scratch: in the lane's own; LDS: in the workgroup's
  uint8_t in_range[kLanes];       // bytes from the first on; all of them but in buffers
  uint64_t scratch = 0, lds = 0;  // lanes that access these; others access global memory
};

// Finds the addresses of the active lanes. Ends the workgroup at a form that is not emulated.
// Reports accesses on which the public sources do not agree.
void find_addresses(Workgroup&, const WaveState&, const Prepared&, uint32_t index, Addresses&);

}  // namespace hk::emulator
