// Which workgroups' stores another workgroup may rely on, by release and acquire at the scope of the
// device (LLVM, AMDGPU usage, memory model gfx942):
//
//   the one:    stores | buffer_wbl2 sc1 | s_waitcnt vmcnt(0) | an atomic on X
//   the other:  an atomic on X, later | s_waitcnt vmcnt(0) | buffer_inv sc1 | loads
//
// Barriers between these steps make them the whole workgroup's. Limits: loads of X that spin are
// not followed; what a workgroup stores after its release counts as released; a byte that several
// workgroups have read is judged by the last of them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>

namespace hk::emulator {

using Workgroups = std::set<uint32_t>;  // by their numbers in RaceShadow

// What one wave's stores have reached, and which other workgroups' it knows of.
class MemoryOrder {
 public:
  // Plain stores by the way they go.
  enum class Stores : uint8_t { none, made, written_back, released, met /* a barrier since */ };

  void store() { stores_ = Stores::made; }
  void write_back() {
    if (stores_ == Stores::made) stores_ = Stores::written_back;
  }
  void wait() {  // for all of its memory accesses
    if (stores_ == Stores::written_back) stores_ = Stores::released;
    known_.merge(in_flight_);
  }
  void invalidate() { acquired_.insert(known_.begin(), known_.end()); }
  void learn(const Workgroups& others) { in_flight_.insert(others.begin(), others.end()); }
  // All waves of the workgroup are at a barrier; `all`: what they know together.
  void meet(const MemoryOrder& all);
  void join(const MemoryOrder& other);  // what a barrier lets others know

  Stores stores() const { return stores_; }
  const Workgroups& acquired() const { return acquired_; }
  bool has_acquired(uint32_t workgroup) const { return acquired_.contains(workgroup); }

 private:
  Stores stores_ = Stores::none;
  Workgroups in_flight_, known_, acquired_;
};

// What the atomics on each address carry from one workgroup to the next, in one launch.
class Synchronisation {
 public:
  // An atomic of a wave: it learns what others released here, and leaves what it has acquired
  // itself; with `releases` also its own workgroup `self`.
  void atomic(uint64_t address, uint32_t self, bool releases, MemoryOrder& wave);

 private:
  std::mutex mutex_;
  std::map<uint64_t, Workgroups> released_;
};

}  // namespace hk::emulator
