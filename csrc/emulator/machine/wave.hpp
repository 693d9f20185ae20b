// The architectural state of one wave of 64 lanes.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "isa/instruction.hpp"

namespace hk::emulator {

inline constexpr int kLanes = 64;
inline constexpr int kSgprVcc = 106, kSgprM0 = 124, kSgprExec = 126;  // encodings

struct alignas(64) Wave {
  uint32_t vgpr[512][kLanes];  // VGPRs, then AGPRs
  uint32_t sgpr[128];          // by encoding, VCC, M0 and EXEC included
  bool scc;
  uint32_t mode;  // hwreg(HW_REG_MODE): [1:0] f32 rounding, [3:2] f64/f16 rounding,
                  // [5:4] f32 denormals, [7:6] f64/f16 denormals, 8 DX10 clamp, 9 IEEE
  uint64_t pc;    // index into the kernel's decoded instructions

  uint64_t exec() const { return pair(kSgprExec); }
  uint64_t vcc() const { return pair(kSgprVcc); }
  uint64_t pair(int index) const { return sgpr[index] | uint64_t(sgpr[index + 1]) << 32; }
  void set_pair(int index, uint64_t value) {
    sgpr[index] = uint32_t(value);
    sgpr[index + 1] = uint32_t(value >> 32);
  }
};

}  // namespace hk::emulator
