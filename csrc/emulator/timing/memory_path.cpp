#include "timing/memory_path.hpp"

#include <algorithm>
#include <cmath>

namespace hk::emulator::timing {

using P = Parameter;

MemoryShare memory_share(const Parameters& parameters, uint32_t active, double clock_ghz) {
  const double clocks_per_us = clock_ghz * 1e3 * active;  // summed over all active CUs
  const auto share = [&](P terabytes) {
    return std::min(parameters[P::compute_unit_fabric],
                    parameters[terabytes] * 1e6 / clocks_per_us);
  };
  return {share(P::infinity_cache), share(P::hbm)};
}

MemoryPath::MemoryPath(const Parameters& parameters, MemoryShare share, Events& events, bool traced)
    : parameters_(parameters), share_(share), events_(events), traced_(traced),
      in_flight_(parameters[P::vector_memory_in_flight]) {
  // nobody has read shared operands before a launch: it begins with a run of misses
  if (traced) misses_ = parameters[P::l2_miss_run] / kSectorBytes;
}

uint64_t MemoryPath::free_at(uint64_t now, const TraceStep& step, uint64_t wave) {
  const double queue = parameters_[P::vector_memory_queue];
  const uint64_t free = path_ > queue ? uint64_t(std::ceil(path_ - queue)) : 0;
  if (!traced_) return free;
  return std::max(free, in_flight_.room_at(now, double(step.needed) * kSectorBytes, wave));
}

uint64_t MemoryPath::issue(uint64_t now, const TraceStep& step, Role role, uint64_t wave) {
  const uint64_t done = done_at(now, step, role);
  if (traced_) in_flight_.add(done, double(step.needed) * kSectorBytes, wave);
  return done;
}

// One of the workgroups that read the same tile is ahead of the others: it misses all of the tile,
// then the others hit. So misses come in runs, and most waits have the latency of a hit.
double MemoryPath::missed(const TraceStep& step) {
  if (step.shared == 0) return 0;
  misses_ += step.shared * (1 - parameters_[P::l2_hits]);
  const double run = parameters_[P::l2_miss_run] / kSectorBytes;
  if (misses_ >= std::max<double>(step.shared, run)) missing_ = true;
  if (!missing_) return 0;
  misses_ -= step.shared;
  missing_ = misses_ >= step.shared;
  return step.shared;
}

// The L1 answers in the order of its requests, so a hit waits for misses of other waves before it.
uint64_t MemoryPath::returned(double done, Role role) {
  if (role != Role::store && parameters_[P::loads_in_order] > 0)
    last_ = done = std::max(done, last_);
  return uint64_t(std::ceil(done));
}

uint64_t MemoryPath::done_at(uint64_t now, const TraceStep& step, Role role) {
  const auto pass = [&](double& free, double& busy, double clocks) {
    free = std::max(free, double(now)) + clocks;
    busy += clocks;
    return free;
  };
  const double bytes = double(step.taken) * kSectorBytes;
  // 64 lanes' addresses take as long as 64 lanes of any instruction
  const double clocks = std::max(4.0, bytes / parameters_[P::vector_memory]);
  double done = pass(path_, use.path_busy, clocks);
  events_.add(UnitEvent{Unit::memory, 0, uint64_t(done - clocks), uint64_t(std::ceil(clocks))});
  if (step.needed == 0) return returned(done + parameters_[P::l1_latency], role);

  const double fetched = double(step.needed) * kSectorBytes;
  use.l2_bytes += fetched;
  done = std::max(done, pass(l2_, use.l2_busy, fetched / parameters_[P::l2])) +
         parameters_[P::l2_latency];
  const double burst = parameters_[P::hbm_burst] / share_.hbm;
  const double alone = double(step.needed - step.shared) * kSectorBytes;
  if (role == Role::store) {
    const double cost = alone * parameters_[P::hbm_write_cost];
    use.hbm_written_bytes += alone;
    return uint64_t(std::ceil(std::max(done, pass(hbm_, use.hbm_busy, cost / share_.hbm) - burst)));
  }
  const double beyond = alone + missed(step) * kSectorBytes;
  if (beyond == 0) return returned(done, role);
  use.fabric_bytes += beyond;
  double arrived = pass(fabric_, use.fabric_busy, beyond / share_.fabric);
  done = std::max(done, arrived + parameters_[P::infinity_cache_latency]);
  if (alone > 0) {
    use.hbm_read_bytes += alone;
    arrived = std::max(arrived, pass(hbm_, use.hbm_busy, alone / share_.hbm) - burst);
    done = std::max(done, arrived + parameters_[P::hbm_latency]);
  }
  return returned(done, role);
}

}  // namespace hk::emulator::timing
