// Facts about each instruction of a kernel, computed once per kernel: the registers that it
// touches, the machine's action for it, and the counters that it counts in.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "loader/code_object.hpp"
#include "isa/instruction.hpp"
#include "machine/action.hpp"
#include "machine/hazard_traits.hpp"
#include "machine/memory_traits.hpp"

namespace hk::emulator {

// Lanes of its vector sources that an instruction reads.
enum class Lanes : uint8_t { exec, all, first, selected };

// Moves between an SGPR and one lane of a VGPR, as compilers spill SGPRs.
enum class Spill : uint8_t { none, to_lane, from_lane };

// Consecutive rows of Wave::vgpr: VGPRs, or AGPRs from 256 on.
struct Registers {
  uint16_t first = 0;
  uint8_t count = 0;
};

struct Prepared {
  const Instruction* instruction = nullptr;
  uint32_t index = 0;  // index in the program
  Execute execute = nullptr;
  Action action = Action::unknown;
  Lanes lanes = Lanes::exec;
  Spill spill = Spill::none;
  uint8_t num_reads = 0, num_writes = 0;
  bool reads_scc = false, writes_scc = false, writes_all_lanes = false;
  // One bit per read: set if its second dword reaches only the result's second dword.
  uint8_t into_high = 0;
  Registers reads[7], writes[2];
  uint16_t vgprs = 0, agprs = 0;  // numbers of registers that must be allocated
  uint64_t scalar_reads[2] = {}, scalar_writes[2] = {};  // bit = encoding
  int32_t target = -1;  // index of a direct branch's target; -1: outside of the text
  HazardTraits hazard;
  MemoryTraits memory;
  uint64_t flops = 0;
};

struct Program {
  std::shared_ptr<const std::vector<Instruction>> text;
  std::shared_ptr<const std::vector<int32_t>> index_of_pc;
  std::vector<Prepared> instructions;
  uint16_t vgprs = 0, agprs = 0;  // numbers of registers that the instructions name
};

std::shared_ptr<const Program> prepared(const Kernel& kernel);  // the same for each call
Prepared prepare_one(const Instruction& instruction, uint32_t index, const Kernel& kernel);

}  // namespace hk::emulator
