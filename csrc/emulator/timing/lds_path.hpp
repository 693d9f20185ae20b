// The timing of a CU's LDS: instructions, and copies from global memory that land. Time is in
// clocks.
#pragma once

#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "machine/trace.hpp"
#include "timing/events.hpp"
#include "timing/operation.hpp"

namespace hk::emulator::timing {

class LdsPath {
 public:
  // `events` gets the clocks in which the LDS works.
  LdsPath(const Parameters& parameters, Events& events)
      : parameters_(parameters), events_(events) {}

  // Earliest clock at which the LDS takes an instruction, as seen at `now`.
  uint64_t free_at(uint64_t now);
  // Issues an instruction at `now`; returns the clock at which a wait sees it done.
  uint64_t issue(uint64_t now, const TraceStep& step, const Operation& o);
  // Called when the data of a copy arrive, at `now`.
  void land(uint64_t now, const TraceStep& copy);

  double busy = 0;  // clocks in which the LDS works

 private:
  void use(uint64_t from, uint64_t clocks);

  const Parameters& parameters_;
  Events& events_;
  uint64_t free_ = 0;
  using Landing = std::pair<uint64_t, uint64_t>;  // start and number of clocks
  std::priority_queue<Landing, std::vector<Landing>, std::greater<>> landings_;
};

}  // namespace hk::emulator::timing
