// Memory instructions in flight: their results land only when an s_waitcnt forces them.
//
// Instructions that a wait forces (CDNA ISA guides, "Data dependency resolution"; LLVM
// SIInsertWaitcnts):
//   vmcnt    loads, stores, atomics and copies to LDS together, in the order of issue
//   lgkmcnt  LDS instructions, in the order of issue, and scalar loads, in any order
//   FLAT     counts in both, in any order
// Instructions of one kind return in the order of issue. Once a counter is at most N, at most N of
// its LDS (vmcnt: vector memory) instructions are outstanding, whatever else it counts. Those are
// the last N issued; all before them have landed. A scalar load or a FLAT instruction may be any of
// the outstanding ones: it has certainly landed only at 0 (FLAT: of both counters).
// Vector loads into the same register therefore need no wait between them (LLVM,
// FeatureVmemWriteVgprInOrder), unless one of them is FLAT.
// A full counter stalls the issue of the next instruction until one has returned. LLVM relies on it
// for vmcnt, and takes the 64th last load as there without a wait. Nobody was seen to rely on it for
// lgkmcnt: results that land only through such a stall stay poisoned here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "machine/wave.hpp"

namespace hk::emulator {

struct InFlight {
  enum class What : uint8_t { store, load, scalar, copy };
  What what = What::store;
  uint32_t instruction = 0;               // index
  uint16_t first = 0;                     // destination: first row of Wave::vgpr, or first SGPR
  uint8_t count = 0;                      // dwords of the destination
  uint16_t superseded = 0;                // those that a later load in flight writes, too
  uint8_t bytes = 0, accesses = 1;        // LDS: bytes per lane and access
  bool flat = false, lds_waited = false;  // FLAT also counts in lgkmcnt; lds_waited: it was 0 since
  bool lds_reads = false, lds_writes = false;
  uint64_t lanes = 0, lds_lanes = 0;  // active lanes; lanes that access LDS (DS, FLAT)
  uint32_t data[16][kLanes];          // loads: data for the destination; scalar loads: column 0
  uint32_t lds[2][kLanes];            // LDS addresses, per access
  const std::byte* from[kLanes];      // copies: source of the data when they land; null: zeros

  bool any_order() const { return flat || what == What::scalar; }
};

class Waits {
 public:
  InFlight& take();              // returns a blank entry
  void issue_vector(InFlight&);  // counts in vmcnt
  void issue_lds(InFlight&);     // counts in lgkmcnt
  void issue_flat(InFlight&);

  static constexpr size_t kMostVector = 63;  // in flight that vmcnt counts

  // Calls land(InFlight&) for all instructions that a wait forces. -1: no wait for that counter.
  template <class Land>
  void wait(int vmcnt, int lgkmcnt, Land&& land);

  // Calls body(const InFlight&, address, lane) for each access to LDS in flight but copies.
  template <class Body>
  void each_lds_access(Body&& body) const;

  // Marks registers that vector loads in flight share with `later`, whose results come after theirs.
  void supersede(const InFlight& later);

  const std::vector<InFlight*>& vector() const { return vector_; }
  const std::vector<InFlight*>& lds() const { return lds_; }
  void clear();

 private:
  // Removes instructions from a queue that are certainly done once its counter is at most `left`.
  template <class Done>
  void take_done(std::vector<InFlight*>& queue, int left, Done&& done);

  std::vector<InFlight*> vector_, lds_;  // oldest first
  std::vector<InFlight*> free_;
  std::vector<std::unique_ptr<InFlight>> all_;
};

// Fields of s_waitcnt's immediate on GFX9: vmcnt [3:0] and [15:14], lgkmcnt [11:8]. expcnt [6:4]
// counts exports only. The largest value of a field does not wait; it becomes -1.
struct WaitFields {
  int vmcnt, lgkmcnt;
};
inline WaitFields wait_fields(uint32_t simm) {
  const int vmcnt = int((simm & 15) | (simm >> 10 & 0x30)), lgkmcnt = int(simm >> 8 & 15);
  return {vmcnt == 63 ? -1 : vmcnt, lgkmcnt == 15 ? -1 : lgkmcnt};
}

template <class Body>
void Waits::each_lds_access(Body&& body) const {
  for (const auto* queue : {&vector_, &lds_})
    for (const InFlight* f : *queue)
      for (int a = 0; f->lds_lanes != 0 && a < f->accesses; ++a)
        for (uint64_t left = f->lds_lanes; left; left &= left - 1) {
          const int lane = std::countr_zero(left);
          body(*f, f->lds[a][lane], lane);
        }
}

template <class Done>
void Waits::take_done(std::vector<InFlight*>& queue, int left, Done&& done) {
  if (queue.size() <= size_t(left)) return;
  int going = -left;  // of those that return in order
  for (const InFlight* f : queue) going += !f->any_order();
  size_t kept = 0;
  for (InFlight* f : queue) {
    if (left == 0 || (!f->any_order() && going-- > 0))
      done(f);
    else
      queue[kept++] = f;
  }
  queue.resize(kept);
}

template <class Land>
void Waits::wait(int vmcnt, int lgkmcnt, Land&& land) {
  const auto finish = [&](InFlight* f) {
    land(*f);
    free_.push_back(f);
  };
  if (vmcnt >= 0)
    take_done(vector_, vmcnt, [&](InFlight* f) {
      if (f->flat && !f->lds_waited)
        lds_.push_back(f);
      else
        finish(f);
    });
  if (lgkmcnt < 0) return;
  take_done(lds_, lgkmcnt, finish);
  if (lgkmcnt == 0)
    for (InFlight* f : vector_) f->lds_waited = true;
}

}  // namespace hk::emulator
