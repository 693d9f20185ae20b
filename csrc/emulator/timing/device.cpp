#include "timing/device.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

namespace hk::emulator::timing {

using P = Parameter;

DeviceTime schedule(std::span<const double> lengths, uint32_t slots, const Parameters& parameters) {
  const uint32_t xcds = parameters.whole(P::xcds);
  const uint32_t places = std::max(1u, parameters.whole(P::compute_units) / xcds * slots);
  // Of each XCD: when its slots are free.
  using Free = std::priority_queue<double, std::vector<double>, std::greater<>>;
  std::vector<Free> free(xcds, Free(std::greater<>{}, std::vector<double>(places, 0.0)));
  DeviceTime time;
  double busy = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    Free& xcd = free[i % xcds];
    const double start = xcd.top() == 0 ? 0 : xcd.top() + parameters[P::workgroup_start];
    xcd.pop();
    xcd.push(start + lengths[i]);
    busy += lengths[i];
    time.clocks = std::max(time.clocks, start + lengths[i]);
  }
  time.first_idle = time.clocks;
  for (const Free& xcd : free) time.first_idle = std::min(time.first_idle, xcd.top());
  time.busy_share = busy / (time.clocks * xcds * places);
  return time;
}

}  // namespace hk::emulator::timing
