// Checks the bytes that one instruction touches in global memory: bounds, and races of workgroups.
#pragma once

#include "machine/workgroup.hpp"

namespace hk::emulator {

class GlobalAccess {
 public:
  GlobalAccess(Workgroup& group, const WaveState& wave, uint32_t index)
      : group_(group), wave_(wave), index_(index) {}

  // Returns the host memory of [address, address + bytes); null: it reported that none is mapped.
  std::byte* at(Address address, uint32_t bytes, int lane) {
    if (!last_ || !last_->contains(address, bytes)) [[unlikely]]
      if (!(last_ = find(address, bytes, lane))) return nullptr;
    const size_t offset = address - last_->address;
    touches_[count_++] = {last_, offset, bytes, lane};
    return last_->host + offset;
  }
  // Called after the last at(): reports races of all its accesses with other workgroups.
  void check_races(RaceShadow::Use use);

 private:
  struct Touch {
    Region* region;
    size_t offset;
    uint32_t bytes;
    int lane;
  };
  bool has_acquired() const { return !wave_.order.acquired().empty(); }
  Region* find(Address address, uint32_t bytes, int lane);
  void find_runs();
  void split_cells();
  // Calls a step of RaceShadow for all runs, and for each access of those with a conflict.
  template <class All, class Some>
  void each_run(RaceShadow::Access access, All all, Some some);
  void report(const Touch& touch, RaceShadow::Use use, uint32_t other);

  Workgroup& group_;
  const WaveState& wave_;
  uint32_t index_;
  Region* last_ = nullptr;
  int count_ = 0, num_runs_ = 0;
  bool whole_ = true;  // no access to a part of a dword
  Touch touches_[kLanes];
  int runs_[kLanes + 1];  // first touches of runs, which follow each other in memory, and the end
};

}  // namespace hk::emulator
