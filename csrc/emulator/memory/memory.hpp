// Global memory: the mapped regions, and the workgroups that touched them in this launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "machine/machine.hpp"
#include "memory/race_shadow.hpp"

namespace hk::emulator {

struct Region {
  Address address = 0;
  size_t bytes = 0;
  std::byte* host = nullptr;
  std::string name;
  RaceShadow shadow;

  bool contains(Address at, size_t size) const {
    return at >= address && at - address <= bytes && size <= bytes - (at - address);
  }
};

class Memory {
 public:
  Address map(void* host, size_t bytes, std::string name);
  void unmap(Address address);
  // The region of an address's slot; null: nothing is mapped there. `at` may be out of its bounds.
  Region* find(Address at) const {
    const uint64_t slot = at >> kSlotBits;
    return slot < kSlots ? slots_[slot] : nullptr;
  }
  // Reserves numbers for the workgroups of one launch; returns the first.
  uint32_t begin_launch(uint64_t workgroups);
  std::mutex& atomics() { return atomics_; }
  // Shared while race shadows are used, exclusive while their cells are split.
  std::shared_mutex& shadows() { return shadows_; }

 private:
  // Each region has its own slots of address space, and begins in the middle of the first one.
  static constexpr int kSlotBits = 34;
  static constexpr size_t kSlots = size_t(1) << (47 - kSlotBits);
  std::vector<Region*> slots_ = std::vector<Region*>(kSlots);
  std::map<Address, std::unique_ptr<Region>> regions_;
  size_t next_ = 1;
  uint32_t launched_ = 1;
  std::mutex atomics_, mutex_;
  std::shared_mutex shadows_;
};

}  // namespace hk::emulator
