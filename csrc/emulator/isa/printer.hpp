// Prints one instruction: its frame in disassemble.cpp, the formats in disassemble_*.cpp.
#pragma once

#include <string>

#include "isa/instruction.hpp"
#include "isa/opcodes.hpp"

namespace hk::emulator {

class Printer {
 public:
  explicit Printer(const Instruction& instruction);
  std::string print();

 private:
  using Role = OperandType::Role;

  bool bit(int index, int word = 0) const { return in_.words[word] >> index & 1; }
  std::string suffix() const;

  void operand(const std::string& text);
  void add(const std::string& text) { text_ += " " + text; }
  void flag(bool set, const char* name) {
    if (set) add(name);
  }
  void list(const char* name, unsigned bits, int n);
  // Sources that the assembler prints.
  int explicit_sources() const;

  void alu();
  std::string source(int i) const;
  // Conversions that write one byte of four, told by two bits: the third source's and the result's.
  bool selects_bytes() const;
  // One bit per source, then the destination's, which is bit 3 however many sources there are.
  unsigned op_sel() const;
  void dpp();
  void sdwa();
  void vop3p();
  void matrix();

  void sopp();
  // Of s_set_gpr_idx_on and _mode.
  std::string indexed_operands() const;
  void waitcnt(unsigned raw);
  void sendmsg(unsigned raw);
  void sopk();
  void smem();

  void ds();
  // The modes of ds_swizzle_b32 (LLVM AMDGPUModifierSyntax, "swizzle").
  void swizzle();
  void cache_policy(bool sc0, bool nt, bool sc1);
  void mubuf();
  void flat();

  const Instruction& in_;
  const OpcodeEntry& entry_;
  Format encoding_;
  std::string text_;
  bool first_ = true;
};

}  // namespace hk::emulator
