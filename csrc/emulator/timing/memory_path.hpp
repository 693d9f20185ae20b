// The timing of a CU's vector memory: address path and L1, then L2, Infinity Cache and HBM. Each
// has a bandwidth (this CU's share of the device's) and a latency. Time is in clocks.
#pragma once

#include "machine/trace.hpp"
#include "timing/events.hpp"
#include "timing/in_flight.hpp"
#include "timing/operation.hpp"

namespace hk::emulator::timing {

// Share of the device's bandwidths that each of `active` CUs gets, in bytes per clock.
struct MemoryShare {
  double fabric, hbm;
};
MemoryShare memory_share(const Parameters& parameters, uint32_t active, double clock_ghz);

// Clocks in which each stage worked, and bytes that passed it.
struct MemoryUse {
  double path_busy = 0, l2_busy = 0, fabric_busy = 0, hbm_busy = 0;
  double l2_bytes = 0, fabric_bytes = 0, hbm_read_bytes = 0, hbm_written_bytes = 0;
};

class MemoryPath {
 public:
  // `events` gets the clocks in which the address path works. `traced`: the replay is one of a
  // trace, where the L2 begins without shared operands and what is in flight has a limit.
  MemoryPath(const Parameters& parameters, MemoryShare share, Events& events, bool traced);

  // Earliest clock at which the path takes a wave's instruction, as far as can be told at `now`.
  uint64_t free_at(uint64_t now, const TraceStep& step, uint64_t wave);
  // Issues a wave's instruction at `now`; returns the clock at which a wait sees it done.
  uint64_t issue(uint64_t now, const TraceStep& step, Role role, uint64_t wave);

  MemoryUse use;

 private:
  // The clock at which an instruction that the path takes at `now` is done.
  uint64_t done_at(uint64_t now, const TraceStep& step, Role role);
  // The clock at which a load's data are in registers or in the LDS, if they reach the CU at `done`.
  uint64_t returned(double done, Role role);
  // Sectors of a load's shared ones that the L2 has not.
  double missed(const TraceStep& step);

  const Parameters& parameters_;
  MemoryShare share_;
  Events& events_;
  const bool traced_;
  InFlight in_flight_;
  double path_ = 0, l2_ = 0, fabric_ = 0, hbm_ = 0;  // clocks at which each is free
  double last_ = 0;                                  // clock at which the last load returns
  double misses_ = 0;                                // misses of shared sectors not yet charged
  bool missing_ = false;                             // a run of misses is under way
};

}  // namespace hk::emulator::timing
