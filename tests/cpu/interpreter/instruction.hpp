// One instruction that the emulated processor lacks, decoded.
#pragma once

#include <cstdint>

namespace hk::test {

enum class Operation : uint8_t {
  vdpbf16ps,
  vcvtneps2bf16,
  vcvtne2ps2bf16,
  vpdpbusd,
  vpdpbusds,
  vpdpwssd,
  vpdpwssds,
  ldtilecfg,
  sttilecfg,
  tilerelease,
  tilezero,
  tileloadd,
  tileloaddt1,
  tilestored,
  tdpbf16ps,
  tdpbssd,
  tdpbsud,
  tdpbusd,
  tdpbuud,
};

constexpr int8_t NONE = -1;
constexpr int8_t RIP = 16;

// The address is base + (index << shift) + displacement; the base RIP is the next instruction's.
struct Instruction {
  Operation operation;
  uint8_t length;        // in bytes
  uint8_t vector_bytes;  // 16, 32 or 64; 0 for tiles
  uint8_t destination;   // a store's source
  uint8_t first;         // the operand of the prefix (vvvv)
  uint8_t second;        // the operand of ModRM.rm, if it is a register
  uint8_t mask;          // k1 to k7; 0 for none
  bool zeroing;
  bool broadcast;
  bool memory;
  int8_t base;
  int8_t index;
  uint8_t shift;
  int32_t displacement;
};

// Whether `code` begins with one of these instructions, in an encoding that the processor accepts.
// Prefixes of segment or address size are refused: compilers put none before these instructions.
bool decode(const uint8_t* code, Instruction& instruction);

const char* name(Operation operation);

}  // namespace hk::test
