// The action of the machine for an instruction.
#pragma once

#include <cstdint>

#include "isa/instruction.hpp"

namespace hk::emulator {

// Actions. The machine itself executes all but `compute`, for which it calls Opcode::execute.
enum class Action : uint8_t {
  compute,
  nop,
  wait,
  barrier,
  end,
  trap,
  branch,
  branch_scc0,
  branch_scc1,
  branch_vccz,
  branch_vccnz,
  branch_execz,
  branch_execnz,
  call,
  setpc,
  swappc,
  getpc,
  time,
  scalar_load,
  lds,
  vector_memory,
  write_back,
  invalidate,
  unknown
};

Action action_of(const Instruction& instruction);

// Whether the machine can execute an opcode; if not, reaching it is a finding.
bool is_emulated(const Opcode& opcode);

}  // namespace hk::emulator
