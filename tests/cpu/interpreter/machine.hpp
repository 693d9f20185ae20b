// The registers of the interrupted code, and the tiles: an instruction works on these.
#pragma once

#include <cstdint>

namespace hk::test {

union alignas(64) Vector {
  uint32_t dwords[16];
  uint16_t words[32];
};

// The registers as entry.cpp has put them on the stack; the last five are the processor's own.
struct Frame {
  Vector zmm[32];
  uint64_t k[8];
  uint32_t mxcsr;
  uint8_t gap[20];
  uint64_t general[16];  // rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15
  uint64_t rip, cs, rflags, rsp, ss;
};

constexpr int TILES = 8, MOST_ROWS = 16, MOST_BYTES = 64;

// All zero: no tiles are configured.
struct TileState {
  bool configured;
  uint8_t rows[TILES];
  uint16_t row_bytes[TILES];
  Vector tile[TILES][MOST_ROWS];
};

struct Instruction;

// The address of a memory operand, of its first row for tiles.
uint64_t address_of(const Instruction& instruction, const Frame& frame);

// These execute one instruction; false, and nothing changed, where the processor would fault.
bool execute_vector(const Instruction& instruction, Frame& frame);
bool execute_tile(const Instruction& instruction, const Frame& frame, TileState& tiles);

}  // namespace hk::test
