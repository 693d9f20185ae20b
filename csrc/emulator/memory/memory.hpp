// Global memory: the mapped regions, and the workgroups that touched them in this launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "machine/machine.hpp"

namespace hk::emulator {

// Workgroups that read and wrote a region in this launch. There is one cell per byte, so that two
// workgroups may write neighbouring bytes. Cells hold numbers of workgroups that count over all
// launches, so that nothing needs to be cleared between launches.
class RaceShadow {
 public:
  RaceShadow() = default;
  ~RaceShadow();
  RaceShadow(const RaceShadow&) = delete;
  void reserve(size_t bytes);  // pages take memory only when they are touched

  // The two steps of a check, with a fence between them: of two workgroups on two threads at least
  // one sees the other. Both return a conflicting workgroup's number, or 0. `first`: the number of
  // this launch's workgroup 0.
  enum class Use : uint8_t { read, write, atomic };
  uint32_t note(Use use, size_t offset, size_t bytes, uint32_t self, uint32_t first);
  uint32_t look(Use use, size_t offset, size_t bytes, uint32_t self, uint32_t first) const;

 private:
  static constexpr uint32_t kAtomic = 1, kSeveral = 1;  // lowest bit of a cell
  uint32_t* written_ = nullptr;                         // flag: the last write was atomic
  uint32_t* read_ = nullptr;                            // flag: several workgroups read
  size_t bytes_ = 0;
};

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

 private:
  // Each region has its own slots of address space, and begins in the middle of the first one.
  static constexpr int kSlotBits = 34;
  static constexpr size_t kSlots = size_t(1) << (47 - kSlotBits);
  std::vector<Region*> slots_ = std::vector<Region*>(kSlots);
  std::map<Address, std::unique_ptr<Region>> regions_;
  size_t next_ = 1;
  uint32_t launched_ = 1;
  std::mutex atomics_, mutex_;
};

}  // namespace hk::emulator
