// Tracks the workgroups whose stores another workgroup may rely on, by release and acquire at
// device scope (LLVM, AMDGPU usage, memory model gfx942):
//
//   the one:    stores | buffer_wbl2 sc1 | s_waitcnt vmcnt(0) | an atomic on X
//   the other:  an atomic on X, later | s_waitcnt vmcnt(0) | buffer_inv sc1 | loads
//
// Barriers between these steps extend them to the whole workgroup. Limits: spinning loads of X are
// not tracked. Stores of a workgroup after its release count as released. A byte that several
// workgroups have read is judged by the last of them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>

namespace hk::emulator {

using Workgroups = std::set<uint32_t>;  // workgroups by their numbers in RaceShadow

// State of one wave's stores, and the workgroups whose stores it may rely on.
class MemoryOrder {
 public:
  // Progress of plain stores.
  enum class Stores : uint8_t { none, made, written_back, released, met /* a barrier since */ };

  void store() { stores_ = Stores::made; }
  void write_back() {
    if (stores_ == Stores::made) stores_ = Stores::written_back;
  }
  void wait() {  // waits for all of the wave's memory accesses
    if (stores_ == Stores::written_back) stores_ = Stores::released;
    known_.merge(in_flight_);
  }
  void invalidate() { acquired_.insert(known_.begin(), known_.end()); }
  void learn(const Workgroups& others) { in_flight_.insert(others.begin(), others.end()); }
  // Called when all waves of the workgroup are at a barrier; `all`: the joined state of all waves.
  void meet(const MemoryOrder& all);
  void join(const MemoryOrder& other);  // adds another wave's state at a barrier

  Stores stores() const { return stores_; }
  const Workgroups& acquired() const { return acquired_; }
  bool has_acquired(uint32_t workgroup) const { return acquired_.contains(workgroup); }

 private:
  Stores stores_ = Stores::none;
  Workgroups in_flight_, known_, acquired_;
};

// State that atomics on each address carry from one workgroup to the next, in one launch.
class Synchronisation {
 public:
  // Called for an atomic of a wave. The wave acquires what others released at this address, and
  // leaves what it has acquired itself; with `releases` also its own workgroup `self`.
  void atomic(uint64_t address, uint32_t self, bool releases, MemoryOrder& wave);

 private:
  std::mutex mutex_;
  std::map<uint64_t, Workgroups> released_;
};

}  // namespace hk::emulator
