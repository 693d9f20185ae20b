// Demands of an instruction on a CU: its unit, the clocks that it takes, and what it waits for.
#pragma once

#include <vector>

#include "machine/prepared.hpp"
#include "timing/parameters.hpp"

namespace hk::emulator::timing {

// Units that instructions issue to. Each SIMD issues at most one instruction to each unit in an
// issue slot. `none` is for instructions that no unit executes: waits, barriers, priorities, s_nop.
enum class Unit : uint8_t { scalar, vector, matrix, lds, memory, scalar_memory, branch, none };
inline constexpr int kUnits = int(Unit::none) + 1;
const char* unit_name(Unit unit);

enum class Role : uint8_t { plain, wait, barrier, end, priority, load, store, copy };

struct Operation {
  Unit unit = Unit::none;
  Role role = Role::plain;
  uint32_t busy = 0;                 // clocks of its unit; for the LDS without conflicts
  uint32_t port = 0;                 // clocks of the vector ALU's port, of a matrix instruction
  uint32_t issue = 4;                // clocks until the wave issues its next instruction
  int16_t vmcnt = -1, lgkmcnt = -1;  // counters that a wait waits for; -1: none
  int8_t priority = 0;
  bool counts_vm = false, counts_lgkm = false;
  bool packed = false;                                   // arithmetic on two float32 of a lane
  uint64_t scalar_reads[2] = {}, scalar_writes[2] = {};  // one bit for each scalar register
  uint8_t num_reads = 0, num_writes = 0;
  Registers reads[7], writes[2];
  // Index in `reads` of a matrix instruction's accumulator; -1: none.
  int8_t accumulator = -1;
};

// Operations of a program's instructions, by index.
std::vector<Operation> operations(const Program& program, const Parameters& parameters);

}  // namespace hk::emulator::timing
