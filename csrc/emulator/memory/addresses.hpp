// Where each lane of a vector memory instruction goes, and how much of its access is in range.
#pragma once

#include "machine/workgroup.hpp"

namespace hk::emulator {

struct Addresses {
  Address at[kLanes];             // of scratch: in the lane's own; of LDS: in the workgroup's
  uint8_t in_range[kLanes];       // bytes, from the first on; less than all in buffers only
  uint64_t scratch = 0, lds = 0;  // lanes that go there; all others go to global memory
};

// Of the active lanes. Ends the workgroup at a form that is not emulated; what the public sources do
// not agree on is a finding.
void find_addresses(Workgroup&, const WaveState&, const Prepared&, uint32_t index, Addresses&);

}  // namespace hk::emulator
