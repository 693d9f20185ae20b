#include "timing/lds_path.hpp"

#include <algorithm>
#include <cmath>

namespace hk::emulator::timing {

using P = Parameter;

uint64_t LdsPath::free_at(uint64_t now) {
  while (!landings_.empty() && landings_.top().first <= now) {  // landings before `now`
    use(landings_.top().first, landings_.top().second);
    landings_.pop();
  }
  const uint64_t queue = parameters_.whole(P::lds_queue);
  return free_ > queue ? free_ - queue : 0;
}

uint64_t LdsPath::issue(uint64_t now, const TraceStep& step, const Operation& o) {
  const uint64_t clocks =
      step.needed ? std::max<uint64_t>(1, uint64_t(o.busy) * step.taken / step.needed) : o.busy;
  use(now, clocks);
  busy += double(clocks);
  return free_ + parameters_.whole(P::lds_latency);
}

void LdsPath::land(uint64_t now, const TraceStep& copy) {
  const double bytes = double(copy.taken) * kSectorBytes;
  const auto clocks = uint64_t(std::ceil(bytes / parameters_[P::lds_copy]));
  landings_.emplace(now, clocks);
  busy += double(clocks);
}

void LdsPath::use(uint64_t from, uint64_t clocks) {
  free_ = std::max(free_, from) + clocks;
  events_.add(UnitEvent{Unit::lds, 0, free_ - clocks, clocks});
}

}  // namespace hk::emulator::timing
