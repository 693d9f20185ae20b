// Events of a CU in a span of clocks, for the picture.
#pragma once

#include <cstdint>
#include <vector>

#include "timing/operation.hpp"

namespace hk::emulator::timing {

struct WaveEvent {
  uint32_t workgroup;  // index in CuTime::workgroups
  uint16_t wave, simd;
  uint32_t instruction;
  uint64_t start, clocks;
  bool waits;    // true: the wave waits; false: it issues
  uint8_t what;  // the Stall if it waits, else the Unit
};

struct UnitEvent {
  Unit unit;
  uint16_t simd;  // SIMD of the unit; 0 for units of the CU
  uint64_t start, clocks;
};

struct Events {
  uint64_t from = 0, to = 0;  // events that overlap these clocks are kept
  std::vector<WaveEvent> waves;
  std::vector<UnitEvent> units;

  void add(const WaveEvent& e) {
    if (overlaps(e.start, e.clocks)) waves.push_back(e);
  }
  void add(const UnitEvent& e) {
    if (overlaps(e.start, e.clocks)) units.push_back(e);
  }

 private:
  bool overlaps(uint64_t start, uint64_t clocks) const {
    return start < to && start + clocks > from;
  }
};

}  // namespace hk::emulator::timing
