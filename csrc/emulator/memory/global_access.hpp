// Checks the bytes that one instruction touches in global memory: bounds, and races of workgroups.
#pragma once

#include "machine/workgroup.hpp"

namespace hk::emulator {

class GlobalAccess {
 public:
  GlobalAccess(Workgroup& group, const WaveState& wave, uint32_t index)
      : group_(group), wave_(wave), index_(index) {}

  // Returns the host memory of [address, address + bytes); null: it reported that none is mapped.
  std::byte* at(Address address, uint32_t bytes, int lane);
  // Called after the last at(): reports races of all its accesses with other workgroups.
  void check_races(RaceShadow::Use use);

 private:
  struct Touch {
    Region* region;
    size_t offset;
    uint32_t bytes;
    int lane;
  };
  void report(const Touch& touch, RaceShadow::Use use, uint32_t other);

  Workgroup& group_;
  const WaveState& wave_;
  uint32_t index_;
  Region* last_ = nullptr;
  int count_ = 0;
  Touch touches_[kLanes];
};

}  // namespace hk::emulator
