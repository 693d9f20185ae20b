// Element types of matrix instructions: how element `part` of a register is read.
#pragma once

#include "semantics/matrix.hpp"

namespace hk::emulator::HK_ISA {

template <Format F>
struct Narrow {
  using Value = float;
  static constexpr int parts = 32 / F.bits();
  static float decode(uint32_t word, int part) {
    return widen<F>(word >> (part * F.bits()) & ((1u << F.bits()) - 1));
  }
};
using F16 = Narrow<kF16>;
struct F32 {
  using Value = float;
  static constexpr int parts = 1;
  static float decode(uint32_t word, int) { return as_float(word); }
};
struct Bf16 {
  using Value = float;
  static constexpr int parts = 2;
  static float decode(uint32_t word, int part) {
    return as_float(part ? word & 0xffff0000u : word << 16);
  }
  static Floats decode(Words words, int part) {
    return Floats(part ? words & 0xffff0000u : words << 16);
  }
};
struct I8 {
  using Value = int32_t;
  static constexpr int parts = 4;
  static int32_t decode(uint32_t word, int part) { return int8_t(word >> (8 * part)); }
};

}  // namespace hk::emulator::HK_ISA
