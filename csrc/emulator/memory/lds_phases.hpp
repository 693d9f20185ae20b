// Phases in which an LDS access is served.
#pragma once

#include <cstdint>

namespace hk::emulator {

// Counts the LDS phases that an access takes, and the fewest that its width needs. Returns false if
// the width is not modelled. Phases are published only for some widths of gfx950: ds_read_b128 and
// ds_read_b64 with 64 banks, ds_write_b64 with 32.
struct LdsPhases {
  uint32_t taken = 0, needed = 0;
};
bool count_phases(bool write, unsigned bytes, const uint32_t* addresses, uint64_t lanes,
                  LdsPhases& phases);

}  // namespace hk::emulator
