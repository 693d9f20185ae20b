// The way in which an instruction accesses memory.
#pragma once

#include <cstdint>

#include "isa/instruction.hpp"

namespace hk::emulator {

enum class Atomic : uint8_t {
  none,
  add,
  sub,
  rsub,
  inc,
  dec,
  smin,
  smax,
  umin,
  umax,
  bit_and,
  bit_or,
  bit_xor,
  mskor,
  swap,
  cmpswap,
  fcmpswap,
  fmin,
  fmax,
  fadd,
  pk_add_f16,
  pk_add_bf16
};

enum class Space : uint8_t { buffer, global, flat, scratch };
enum class Access : uint8_t {
  load,
  store,
  atomic,
  copy /* to LDS */,
  swizzle,
  permute,
  bpermute,
  transpose  // DS only
};

struct MemoryTraits {
  Space space = Space::global;
  Access access = Access::load;
  Atomic atomic = Atomic::none;
  uint8_t bytes = 4;            // bytes of one access and lane
  uint8_t accesses = 1;         // ds_read2, ds_write2: 2
  uint8_t transposed_bits = 0;  // bits of an element that a transposed read moves
  bool strided64 = false, sign_extend = false, d16 = false, high = false, supported = true;
};

MemoryTraits memory_traits(const Instruction& instruction);

}  // namespace hk::emulator
