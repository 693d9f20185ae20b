// The table of opcodes: one row per opcode, in opcodes_*.cpp, by encoding.
//
//   {0x3b, "v_fmac_f32", "f32=f32,f32,@"}      number, mnemonic, signature "destinations=sources"
//
// A type gives an operand's width and the meaning of its inline constants: b i u f bf (also fp,
// bf8..: opaque) and the bits, as in "f32", "bf16". "f16x2" is packed, "f32x4" spans 4 registers.
// Other types:
//   m    a mask of 64 lanes: VCC or a pair of SGPRs      s32   an SGPR
//   a32  an AGPR                                         v32   a VGPR even where SGPRs are allowed
//   k    SIMM16                                          @     the destination's old value
// Signatures of memory opcodes have only the data ("b128=" loads, "=b32" stores, "b32=b32"
// atomics); the format defines the addresses.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "isa/instruction.hpp"

namespace hk::emulator {

enum class Format : uint8_t {
  sop2,
  sopk,
  sop1,
  sopc,
  sopp,
  smem,
  vop1,
  vop2,
  vopc,
  vop3,  // VOP3 also carries vopc at 0, vop2 at 0x100, vop1 at 0x140
  vop3p,
  mfma,
  scaled_mfma,
  ds,
  flat,
  scratch,
  global,
  mubuf,
  count
};

enum RowFlags : uint32_t {
  kReadsScc = kScc,
  kReadsVcc = kVcc,
  kReadsExec = kExec,
  kReadsM0 = kM0,
  kReadsMode = kMode,
  kWritesScc = kScc << 8,
  kWritesVcc = kVcc << 8,
  kWritesExec = kExec << 8,
  kWritesM0 = kM0 << 8,
  kWritesMode = kMode << 8,
  kGfx942 = 1 << 16,  // only on this arch
  kGfx950 = 1 << 17,
  kNoVop3 = 1 << 18,      // a VOP1 or VOP2 opcode without a VOP3 form: printed without _e32
  kSwaps = 1 << 19,       // both operands are read and written
  kNoAddress = 1 << 20,   // DS, SMEM, MUBUF: the opcode has no address
  kTwoOffsets = 1 << 21,  // DS: two accesses, with an offset of 8 bits each
};

struct Row {
  uint16_t number;
  std::string_view mnemonic, signature;
  uint32_t flags = 0;
};

struct Rows {
  Format format;
  Class cls;
  std::span<const Row> rows;
};

std::span<const Rows> scalar_rows();
std::span<const Rows> vector_rows();   // VOP1, VOP2
std::span<const Rows> vector3_rows();  // VOP3 only
std::span<const Rows> packed_rows();   // VOP3P
std::span<const Rows> matrix_rows();
std::span<const Rows> lds_rows();   // DS, and SMEM
std::span<const Rows> vmem_rows();  // MUBUF, FLAT, GLOBAL, SCRATCH

// One operand of a signature.
struct OperandType {
  enum class Role : uint8_t { none, any, sgpr, vgpr, agpr, mask, simm16, tied };
  Role role = Role::none;
  char base = 'b';    // b i u f; B: bfloat16
  uint8_t bits = 32;  // bits of one element
  uint8_t count = 1;  // number of elements
  uint8_t dwords() const { return bits * count < 32 ? 1 : bits * count / 32; }
};

struct OpcodeEntry : Opcode {
  Format format = Format::count;
  uint16_t number = 0;
  uint32_t flags = 0;
  OperandType dst[2], src[5];
  uint8_t num_dst = 0, num_src = 0;
};

// Finds an opcode; null if the arch does not have it. `lds`: a MUBUF load that writes LDS.
const OpcodeEntry* find_opcode(Arch arch, Format format, unsigned number, bool lds = false);
std::vector<const OpcodeEntry*> all_opcodes(Arch arch);

inline const OpcodeEntry& entry_of(const Instruction& instruction) {
  return static_cast<const OpcodeEntry&>(*instruction.opcode);
}

}  // namespace hk::emulator
