#include "timing/wave_clock.hpp"

#include <algorithm>

namespace hk::emulator::timing {

void Outstanding::add(uint64_t done, bool in_order) {
  if (in_order) newest_ = done = std::max(done, newest_);
  done_.insert(std::upper_bound(done_.begin(), done_.end(), done), done);
}

uint64_t Outstanding::at_most(int left) const {
  if (left < 0 || done_.size() <= size_t(left)) return 0;
  return done_[done_.size() - size_t(left) - 1];
}

void Outstanding::drop_done(uint64_t now) {
  done_.erase(done_.begin(), std::upper_bound(done_.begin(), done_.end(), now));
}

uint64_t WaveClock::results_ready(const Operation& o, uint32_t forward) const {
  uint64_t ready = 0;
  for (int i = 0; i < o.num_reads; ++i) {
    const Registers r = o.reads[i];
    for (uint32_t row = r.first; row < uint32_t(r.first + r.count); ++row) {
      const bool chain = i == o.accumulator && owner[row] == r.first;
      ready = std::max(ready, result[row] - (chain ? std::min<uint64_t>(forward, result[row]) : 0));
    }
  }
  if (o.unit == Unit::matrix) return ready;  // the matrix unit writes in order
  for (int i = 0; i < o.num_writes; ++i)
    for (uint32_t row = o.writes[i].first; row < uint32_t(o.writes[i].first + o.writes[i].count);
         ++row)
      ready = std::max(ready, result[row]);
  return ready;
}

void WaveClock::note_matrix(const Operation& o, uint64_t ready) {
  const Registers w = o.writes[0];
  for (uint32_t row = w.first; row < uint32_t(w.first + w.count); ++row) {
    result[row] = ready;
    owner[row] = w.first;
  }
  last_result = std::max(last_result, ready);
}

}  // namespace hk::emulator::timing
