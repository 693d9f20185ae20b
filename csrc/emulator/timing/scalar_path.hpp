// The timing of a CU's scalar loads and of their cache. Time is in clocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "timing/parameters.hpp"

namespace hk::emulator::timing {

class ScalarPath {
 public:
  // `traced`: a trace is replayed, which begins with an empty cache; else it has every line.
  ScalarPath(const Parameters& parameters, bool traced)
      : parameters_(parameters), traced_(traced) {}

  // Issues a load of a cache line at `now`; returns the clock at which a wait sees it done.
  uint64_t issue(uint64_t now, uint32_t line) {
    const uint64_t hit = now + parameters_.whole(Parameter::scalar_latency);
    if (!traced_) return hit;
    // the first miss waits for the address's translation, too
    const auto miss = filled_.empty() ? Parameter::scalar_cold : Parameter::scalar_miss;
    const auto [filled, _] = filled_.try_emplace(line, now + parameters_.whole(miss));
    return std::max(filled->second, hit);
  }

 private:
  const Parameters& parameters_;
  const bool traced_;
  std::map<uint32_t, uint64_t> filled_;  // clock from which the cache has each line
};

}  // namespace hk::emulator::timing
