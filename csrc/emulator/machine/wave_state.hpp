// A wave, with all state that the checks keep for it.
#pragma once

#include <array>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "machine/prepared.hpp"
#include "checks/waits.hpp"
#include "machine/wave.hpp"
#include "memory/synchronisation.hpp"

namespace hk::emulator {

// One bit per row of Wave::vgpr. One load tests a range of up to 57 rows.
struct RegisterBits {
  alignas(8) uint8_t bytes[512 / 8 + 8] = {};

  uint64_t range(Registers r) const {
    uint64_t word;
    std::memcpy(&word, bytes + r.first / 8, 8);
    return word >> r.first % 8 & ((1ull << r.count) - 1);
  }
  void set(int i) { bytes[i / 8] |= uint8_t(1 << i % 8); }
  void clear(int i) { bytes[i / 8] &= uint8_t(~(1 << i % 8)); }
  void fill() { std::memset(bytes, 0xff, sizeof bytes); }
};

// Recent instructions and their issue times in wait states: 1 each, n + 1 for s_nop n.
struct Recent {
  static constexpr int kSize = 32;
  uint64_t now = 64;
  uint64_t at[kSize] = {};
  const Prepared* instruction[kSize] = {};
  int last = 0;
  uint64_t last_of[kCauses] = {};  // time of the last instruction that is a Cause

  void push(const Prepared& p) {
    last = (last + 1) % kSize;
    at[last] = now;
    instruction[last] = &p;
    for (unsigned left = p.hazard.causes; left; left &= left - 1)
      last_of[std::countr_zero(left)] = now;
    now += p.hazard.wait_states;
  }
  // Whether fewer than `states` wait states have passed since the last instruction that is a Cause.
  bool within(Cause cause, int states) const {
    return now - last_of[int(cause)] <= uint64_t(states);
  }
};

struct WaveState {
  Wave wave;
  uint32_t index = 0;  // index in the workgroup
  uint64_t lanes = 0;  // lanes that have a work-item
  bool ended = false, at_barrier = false;
  uint64_t executed = 0;

  // State of vector registers. A `partial` one has lanes that were never written; see `written`.
  RegisterBits pending, partial, recent_matrix;
  uint64_t written[512];
  std::unordered_map<int, uint64_t> saved_unwritten;  // lanes that hold an SGPR never written
  uint32_t matrix_at[512];  // wait-state time of the last matrix instruction that wrote it
  const Prepared* matrix_by[512];

  // State of scalar registers, by encoding.
  uint64_t scalar_written[2], scalar_pending[2];
  bool scc_written;

  Recent recent;
  Waits waits;
  MemoryOrder order;
};

}  // namespace hk::emulator
