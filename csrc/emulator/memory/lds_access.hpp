// Checks the LDS bytes that a DS or FLAT instruction touches: bounds, alignment, races of waves.
#pragma once

#include "machine/workgroup.hpp"

namespace hk::emulator {

class LdsAccess {
 public:
  // `f`: the instruction in flight, whose LDS addresses, lanes and bytes are checked.
  LdsAccess(Workgroup& group, const WaveState& wave, const Prepared& p, uint32_t index, InFlight& f)
      : g_(group), w_(wave), p_(p), index_(index), f_(f) {}

  // Ends the workgroup at an address that is out of bounds or no multiple of `alignment`, a power
  // of 2.
  void check_bounds(uint32_t alignment) const;
  // Reports races and bytes never written, and records the access.
  void check_races(bool read, bool write) const;

 private:
  bool is_inside(uint32_t alignment) const;  // the quick answer for all lanes
  // Whether the bytes already hold what this lane writes, by this instruction in another wave.
  bool writes_the_same(const Lds::Verdict& v, int access, int lane) const;
  void report(const Lds::Verdict& v, int lane, uint32_t at, bool write) const;

  Workgroup& g_;
  const WaveState& w_;
  const Prepared& p_;
  uint32_t index_;
  InFlight& f_;
};

}  // namespace hk::emulator
