#include "memory/lds_phases.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

namespace hk::emulator {
namespace {

// Lanes that ds_read_b128 serves together: {0-3, 12-15, 20-27}, {4-11, 16-19, 28-31}, and both +
// 32.
constexpr uint64_t kRead128[] = {0x0ff0f00full, 0xf00f0ff0ull, 0x0ff0f00full << 32,
                                 0xf00f0ff0ull << 32};
constexpr uint64_t kRead64[] = {0xffffffffull, 0xffffffffull << 32};
constexpr uint64_t kWrite64[] = {0xffffull, 0xffffull << 16, 0xffffull << 32, 0xffffull << 48};

// Phases of one group of lanes: the largest number of different addresses on the same banks. A slot
// is the banks that one lane uses; addresses are aligned to the width.
uint32_t phases_of_group(uint64_t lanes, const uint32_t* addresses, unsigned bytes,
                         unsigned slots) {
  const int shift = std::countr_zero(bytes);  // both are powers of 2
  uint32_t used = 0;
  for (uint64_t left = lanes; left; left &= left - 1)
    used |= 1u << (addresses[std::countr_zero(left)] >> shift & (slots - 1));
  if (std::popcount(used) == std::popcount(lanes)) return used != 0;  // each lane has its own
  uint32_t seen[32][64], count[32] = {}, most = 1;
  for (uint64_t left = lanes; left; left &= left - 1) {
    const uint32_t address = addresses[std::countr_zero(left)], slot = address / bytes % slots;
    uint32_t* end = seen[slot] + count[slot];
    if (std::find(seen[slot], end, address) != end) continue;  // one read serves both lanes
    *end = address;
    most = std::max(most, ++count[slot]);
  }
  return most;
}

}  // namespace

bool count_phases(bool write, unsigned bytes, const uint32_t* addresses, uint64_t lanes,
                  LdsPhases& phases) {
  const uint64_t *groups, *end;
  unsigned slots;
  if (!write && bytes == 16)
    groups = kRead128, end = std::end(kRead128), slots = 16;
  else if (!write && bytes == 8)
    groups = kRead64, end = std::end(kRead64), slots = 32;
  else if (write && bytes == 8)
    groups = kWrite64, end = std::end(kWrite64), slots = 16;
  else
    return false;
  for (; groups != end; ++groups) {
    phases.taken += phases_of_group(*groups & lanes, addresses, bytes, slots);
    phases.needed += (*groups & lanes) != 0;
  }
  return true;
}

}  // namespace hk::emulator
