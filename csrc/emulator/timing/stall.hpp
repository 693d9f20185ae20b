// Reasons why a wave did not issue.
#pragma once

#include <cstdint>

namespace hk::emulator::timing {

enum class Stall : uint8_t {
  vector_memory,  // s_waitcnt vmcnt
  lds,            // s_waitcnt lgkmcnt: LDS and scalar loads
  barrier,
  matrix_result,
  matrix_busy,
  vector_busy,
  lds_busy,     // its queue is full
  memory_busy,  // its queue is full
  other_wave,   // another wave took the unit in this slot
  itself,       // s_nop, s_sleep, jumps
  count
};
inline constexpr int kStalls = int(Stall::count);
const char* stall_name(Stall stall);

}  // namespace hk::emulator::timing
