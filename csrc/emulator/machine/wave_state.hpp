// A wave with all that the checks remember of it.
#pragma once

#include <array>
#include <bit>
#include <cstring>

#include "machine/prepared.hpp"
#include "checks/waits.hpp"
#include "machine/wave.hpp"
#include "memory/synchronisation.hpp"

namespace hk::emulator {

// One bit per row of Wave::vgpr; ranges of up to 57 rows are tested with one load.
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

// Recent instructions and when they were issued, in wait states: 1 each, s_nop n: n + 1.
struct Recent {
  static constexpr int kSize = 32;
  uint64_t now = 64;
  uint64_t at[kSize] = {};
  const Prepared* instruction[kSize] = {};
  int last = 0;

  void push(const Prepared& p, int states) {
    last = (last + 1) % kSize;
    at[last] = now;
    instruction[last] = &p;
    now += uint64_t(states);
  }
};

struct WaveState {
  Wave wave;
  uint32_t index = 0;  // in the workgroup
  uint64_t lanes = 0;  // that have a work-item
  bool ended = false, at_barrier = false;
  uint64_t executed = 0;

  // Vector registers: `partial` has lanes never written, told apart by `written`.
  RegisterBits pending, partial, recent_matrix;
  uint64_t written[512];
  uint32_t matrix_at[512];  // wait-state clock of the last matrix instruction that wrote it
  const Prepared* matrix_by[512];

  // Scalar registers, by encoding.
  uint64_t scalar_written[2], scalar_pending[2];
  bool scc_written;
  uint64_t last_valu_scalar_write;

  Recent recent;
  Waits waits;
  MemoryOrder order;
};

}  // namespace hk::emulator
