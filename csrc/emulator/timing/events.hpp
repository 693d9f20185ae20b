// What happens on a CU in a span of clocks: for the picture.
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
  bool waits;    // or issues
  uint8_t what;  // a Stall, or a Unit
};

struct UnitEvent {
  Unit unit;
  uint16_t simd;  // of a unit that each SIMD has; else 0
  uint64_t start, clocks;
};

struct Events {
  uint64_t from = 0, to = 0;  // what overlaps these clocks is kept
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
