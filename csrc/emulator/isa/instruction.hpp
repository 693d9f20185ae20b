// One decoded instruction, which all parts of the emulator share.
//
// decode.cpp makes it, semantics_*.cpp compute it, and machine.cpp runs and checks it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hk::emulator {

struct Wave;
struct Instruction;

enum class Arch : uint8_t { gfx942, gfx950 };

// Function that computes an ALU instruction on a wave. Null: the machine itself executes the
// instruction (memory, waits, barriers, branches, s_endpgm).
using Execute = void (*)(Wave&, const Instruction&);

enum class Kind : uint8_t {
  none,
  sgpr,      // index is the encoding: 0 to 101, VCC 106/107, M0 124, EXEC 126/127
  vgpr,      // 0 to 255, in Wave::vgpr
  agpr,      // 0 to 255, in Wave::vgpr at 256 + index
  constant,  // inline or literal: `value` holds the bits in the instruction's type
  scc,
  vccz,
  execz,
};

struct Operand {
  Kind kind = Kind::none;
  uint8_t dwords = 1;  // number of registers that the operand spans
  uint16_t index = 0;
  uint64_t value = 0;                     // value of a constant
  bool negate = false, absolute = false;  // VOP3 and DPP/SDWA modifiers (packed ones: see below)
};

// Classes by which instructions are checked, counted and timed.
enum class Class : uint8_t {
  salu,
  valu,
  transcendental,
  matrix,
  smem,
  vmem_load,
  vmem_store,
  lds_copy /* global to LDS */,
  lds_read,
  lds_write,
  lds_atomic,
  global_atomic,
  scratch,
  branch,
  wait,
  barrier,
  message,
  end,
  nop
};

enum Implicit : uint8_t { kScc = 1, kVcc = 2, kExec = 4, kM0 = 8, kMode = 16 };

// An opcode: everything that does not change from one use to the next.
struct Opcode {
  std::string_view mnemonic;  // without _e32, _e64, _dpp, _sdwa
  Class cls = Class::salu;
  Execute execute = nullptr;
  uint8_t reads = 0, writes = 0;  // Implicit
};

struct Instruction {
  const Opcode* opcode = nullptr;
  Operand dst[2];  // VALU with a carry or compare: [0] the result, [1] the mask
  Operand src[5];  // stores, DS: [0] address, [1] data, [2] second data; buffers: see `resource`
  uint8_t num_dst = 0, num_src = 0;

  // VALU
  bool clamp = false;
  uint8_t omod = 0;                      // 0 none, 1 *2, 2 *4, 3 /2
  uint8_t op_sel = 0, op_sel_hi = 0;     // VOP3 and VOP3P: one bit per source (op_sel bit 3: dst)
  uint8_t neg_lo = 0, neg_hi = 0;        // VOP3P: one bit per source
  uint8_t cbsz = 0, abid = 0, blgp = 0;  // MFMA
  bool dpp = false, sdwa = false, bound_ctrl = false;
  uint16_t dpp_ctrl = 0;
  uint8_t row_mask = 15, bank_mask = 15;
  uint8_t dst_sel = 6, dst_unused = 0, src0_sel = 6, src1_sel = 6;  // SDWA
  bool src0_sext = false, src1_sext = false;

  // Memory
  Operand resource;     // MUBUF: descriptor (4 SGPRs); FLAT: saddr
  Operand soffset;      // MUBUF: scalar offset
  int32_t offset = 0;   // immediate, sign-extended where the format says so; DS: offset0
  uint8_t offset1 = 0;  // DS read2/write2
  bool idxen = false, offen = false, lds = false, glc = false, gds = false;
  uint8_t bytes = 0;  // per lane: 1, 2, 4, 8, 12, 16

  // Branches, waits and the rest of SOPP/SOPK
  int32_t simm = 0;  // sign-extended SIMM16 (s_waitcnt: the raw field)

  uint64_t pc = 0;   // byte offset in the code object's .text section
  uint8_t size = 4;  // bytes
  uint32_t words[4] = {};
};

// Text of an instruction in the format of llvm-objdump, for findings.
std::string to_string(const Instruction& instruction);

}  // namespace hk::emulator
