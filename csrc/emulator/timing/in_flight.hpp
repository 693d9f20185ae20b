// Loads and stores that a CU has in flight, up to a number of bytes. Waves that find no room get
// it in the order in which they asked. Time is in clocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace hk::emulator::timing {

class InFlight {
 public:
  explicit InFlight(double most) : most_(most) {}

  // First clock at which a wave may issue an access of `bytes`, as far as can be told at `now`.
  uint64_t room_at(uint64_t now, double bytes, uint64_t wave) {
    while (!done_.empty() && done_.begin()->first <= now) {
      bytes_ -= done_.begin()->second;
      done_.erase(done_.begin());
    }
    double excess = bytes_ + bytes - most_;
    const auto own = std::find_if(asked_.begin(), asked_.end(),
                                  [&](const auto& other) { return other.first == wave; });
    for (auto earlier = asked_.begin(); earlier != own; ++earlier) excess += earlier->second;
    const bool first = asked_.empty() || asked_.front().first == wave;
    if (excess > 0 && own == asked_.end()) asked_.emplace_back(wave, bytes);
    uint64_t room = 0;
    for (auto next = done_.begin(); excess > 0 && next != done_.end(); ++next) {
      room = next->first;
      excess -= next->second;
    }
    return excess > 0 && !first ? std::max(room, now + 1) : room;  // others come first: ask again
  }

  // A wave issues an access that is done at `done`.
  void add(uint64_t done, double bytes, uint64_t wave) {
    done_[done] += bytes;
    bytes_ += bytes;
    std::erase_if(asked_, [&](const auto& other) { return other.first == wave; });
  }

 private:
  const double most_;
  double bytes_ = 0;
  std::map<uint64_t, double> done_;                 // bytes by the clock at which they are done
  std::vector<std::pair<uint64_t, double>> asked_;  // waves without room, and their bytes
};

}  // namespace hk::emulator::timing
