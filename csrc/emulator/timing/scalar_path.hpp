// The timing of a CU's scalar loads. Kernels read few lines, their arguments first. Time is in
// clocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "timing/parameters.hpp"

namespace hk::emulator::timing {

class ScalarPath {
 public:
  // `cold`: the scalar cache does not have the arguments yet.
  ScalarPath(const Parameters& parameters, bool cold) : parameters_(parameters), cold_(cold) {}

  // Issues a load at `now`; returns the clock at which a wait sees it done.
  uint64_t issue(uint64_t now) {
    if (!filled_) filled_ = cold_ ? now + parameters_.whole(Parameter::scalar_cold) : now;
    return std::max(*filled_, now + parameters_.whole(Parameter::scalar_latency));
  }

 private:
  const Parameters& parameters_;
  const bool cold_;
  std::optional<uint64_t> filled_;  // clock from which the cache has the arguments
};

}  // namespace hk::emulator::timing
