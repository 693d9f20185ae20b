// What the machine needs to know about each instruction of a kernel, worked out once per kernel:
// which registers it touches, what the machine has to do for it, what it counts as.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "loader/code_object.hpp"
#include "isa/instruction.hpp"

namespace hk::emulator {

// Who executes an instruction: `compute` is Opcode::execute, all else is the machine.
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
  unknown
};

// Which lanes of its vector sources an instruction reads.
enum class Lanes : uint8_t { exec, all, first, selected };

// Consecutive rows of Wave::vgpr: VGPRs, or AGPRs from 256 on.
struct Registers {
  uint16_t first = 0;
  uint8_t count = 0;
};

// The part of an opcode's name that decides which wait states it needs or causes (hazards.cpp).
struct HazardTraits {
  bool valu = false;  // matrix instructions not included
  bool transcendental = false, dot = false, dpp = false;
  bool partial = false;  // writes half a register
  bool matrix = false, xdl = false, f64 = false;
  bool lane_access = false;  // v_readlane, v_readfirstlane, v_writelane
  bool permlane_swap = false, div_fmas = false, reads_m0_late = false;
  bool vector_memory = false, lds = false;
  bool long_store = false;                       // more than 8 bytes, whose data are read late
  uint8_t passes = 0;                            // of a matrix instruction: 4 clocks each
  int16_t set_register = -1, get_register = -1;  // hwreg id
};

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
  transpose16  // DS only
};

struct MemoryTraits {
  Space space = Space::global;
  Access access = Access::load;
  Atomic atomic = Atomic::none;
  uint8_t bytes = 4;     // of one access and lane
  uint8_t accesses = 1;  // ds_read2, ds_write2: 2
  bool strided64 = false, sign_extend = false, d16 = false, high = false, supported = true;
};

struct Prepared {
  const Instruction* instruction = nullptr;
  uint32_t index = 0;  // in the program
  Execute execute = nullptr;
  Action action = Action::unknown;
  Lanes lanes = Lanes::exec;
  uint8_t num_reads = 0, num_writes = 0;
  bool reads_scc = false, writes_scc = false, writes_all_lanes = false;
  // One bit per read: its second dword reaches the result's second dword only.
  uint8_t into_high = 0;
  Registers reads[7], writes[2];
  uint64_t scalar_reads[2] = {}, scalar_writes[2] = {};  // bit = encoding
  int32_t target = -1;  // of a direct branch, as an index; -1: outside of the text
  HazardTraits hazard;
  MemoryTraits memory;
  uint64_t flops = 0;
};

struct Program {
  std::shared_ptr<const std::vector<Instruction>> text;
  std::shared_ptr<const std::vector<int32_t>> index_of_pc;
  std::vector<Prepared> instructions;
};

std::shared_ptr<const Program> prepare(const Kernel& kernel);
Prepared prepare_one(const Instruction& instruction, uint32_t index, const Kernel& kernel);

// Whether the machine can execute it; if not, reaching it is a finding.
bool is_emulated(const Opcode& opcode);

}  // namespace hk::emulator
