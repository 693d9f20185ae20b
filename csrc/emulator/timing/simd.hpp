// One SIMD of a CU: its units, and its waves in the order in which they may issue.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "timing/wave_clock.hpp"

namespace hk::emulator::timing {

struct Simd {
  uint64_t vector_free = 0, matrix_free = 0;
  std::array<uint64_t, kUnits> taken{};  // 1 + the slot in which a unit last took an instruction
  std::vector<WaveClock*> waves;         // sorted by priority, then age

  void order() {
    std::sort(waves.begin(), waves.end(), [](const WaveClock* a, const WaveClock* b) {
      return a->priority != b->priority ? a->priority > b->priority : a->age < b->age;
    });
  }
};

}  // namespace hk::emulator::timing
