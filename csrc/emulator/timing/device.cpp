#include "timing/device.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

namespace hk::emulator::timing {

using P = Parameter;

DeviceTime schedule(std::span<const double> lengths, uint32_t slots, const Parameters& parameters) {
  const uint32_t xcds = parameters.whole(P::xcds);
  const uint32_t units = std::max(1u, parameters.whole(P::compute_units) / xcds);  // CUs of an XCD
  // The slots of an XCD: time at which the slot is free, number of the slot in its CU, CU.
  using Slot = std::tuple<double, uint32_t, uint32_t>;
  using Free = std::priority_queue<Slot, std::vector<Slot>, std::greater<>>;
  std::vector<Slot> all;
  for (uint32_t slot = 0; slot < slots; ++slot)
    for (uint32_t unit = 0; unit < units; ++unit) all.emplace_back(0.0, slot, unit);
  std::vector<Free> free(xcds, Free(std::greater<>{}, all));
  DeviceTime time;
  time.places.reserve(lengths.size());
  double busy = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    Free& xcd = free[i % xcds];
    const auto [at, slot, unit] = xcd.top();
    xcd.pop();
    const double end = (at == 0 ? 0 : at + parameters[P::workgroup_start]) + lengths[i];
    xcd.emplace(end, slot, unit);
    time.places.push_back((uint32_t(i % xcds) * units + unit) * slots + slot);
    busy += lengths[i];
    time.clocks = std::max(time.clocks, end);
  }
  time.busy_share = busy / (time.clocks * xcds * units * slots);
  return time;
}

}  // namespace hk::emulator::timing
