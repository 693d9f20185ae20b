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

uint64_t WaveClock::follows(const Operation& o, const Parameters& parameters) const {
  using P = Parameter;
  const bool memory = o.unit == Unit::lds || o.unit == Unit::memory;
  uint64_t ready = 0;
  if (last == Unit::matrix && (memory || o.unit == Unit::vector))
    ready = issued + parameters.whole(P::after_matrix);
  if (last == Unit::vector && memory) ready = issued + parameters.whole(P::memory_after_vector);
  if (last == Unit::scalar && o.unit == Unit::branch)
    ready = issued + parameters.whole(P::branch_after_scalar);
  if ((vector_scalars[0] & o.scalar_reads[0]) | (vector_scalars[1] & o.scalar_reads[1]))
    if (o.unit == Unit::scalar || o.unit == Unit::branch)
      ready = std::max(ready, scalars_written + parameters.whole(P::scalar_after_vector));
  return ready;
}

void WaveClock::note_issue(const Operation& o, uint64_t now) {
  if (o.unit != Unit::none) last = o.unit, issued = now;
  const bool vector = o.unit == Unit::vector;
  for (int i = 0; i < 2; ++i)
    vector_scalars[i] =
        vector ? vector_scalars[i] | o.scalar_writes[i] : vector_scalars[i] & ~o.scalar_writes[i];
  if (vector && (o.scalar_writes[0] | o.scalar_writes[1])) scalars_written = now;
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
