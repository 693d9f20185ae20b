// Vector memory of one CU: address path and L1, then L2, Infinity Cache and HBM, each with a
// bandwidth (this CU's share of the device's) and a latency. Time is in clocks.
#pragma once

#include "machine/trace.hpp"
#include "timing/events.hpp"
#include "timing/operation.hpp"

namespace hk::emulator::timing {

// What one of `active` CUs gets of the device, in bytes per clock.
struct MemoryShare {
  double fabric, hbm;
};
MemoryShare memory_share(const Parameters& parameters, uint32_t active, double clock_ghz);

// Clocks for which each stage worked, and bytes that passed it.
struct MemoryUse {
  double path_busy = 0, l2_busy = 0, fabric_busy = 0, hbm_busy = 0;
  double l2_bytes = 0, fabric_bytes = 0, hbm_read_bytes = 0, hbm_written_bytes = 0;
};

class MemoryPath {
 public:
  // `events` gets the clocks in which the address path works.
  MemoryPath(const Parameters& parameters, MemoryShare share, Events& events)
      : parameters_(parameters), share_(share), events_(events) {}

  // Earliest clock from which an instruction is taken.
  uint64_t free_at() const;
  // An instruction issued at `now`: when a wait sees it done.
  uint64_t issue(uint64_t now, const TraceStep& step, Role role);

  MemoryUse use;

 private:
  const Parameters& parameters_;
  MemoryShare share_;
  Events& events_;
  double path_ = 0, l2_ = 0, fabric_ = 0, hbm_ = 0;  // when each is free
  double misses_ = 0;  // of shared sectors, not yet charged: less than one instruction's
};

}  // namespace hk::emulator::timing
