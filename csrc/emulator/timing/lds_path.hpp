// The LDS of one CU: instructions, and copies from global memory as they land. Time is in clocks.
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
  // `events` gets the clocks in which it works.
  LdsPath(const Parameters& parameters, Events& events)
      : parameters_(parameters), events_(events) {}

  // Earliest clock from which an instruction is taken, as seen at `now`.
  uint64_t free_at(uint64_t now);
  // An instruction issued at `now`: when a wait sees it done.
  uint64_t issue(uint64_t now, const TraceStep& step, const Operation& o);
  // What a copy brings is there at `now`.
  void land(uint64_t now, const TraceStep& copy);

  double busy = 0;  // clocks for which it works

 private:
  void use(uint64_t from, uint64_t clocks);

  const Parameters& parameters_;
  Events& events_;
  uint64_t free_ = 0;
  using Landing = std::pair<uint64_t, uint64_t>;  // when, for how many clocks
  std::priority_queue<Landing, std::vector<Landing>, std::greater<>> landings_;
};

}  // namespace hk::emulator::timing
