// Printer of one instruction. disassemble.cpp prints the frame, disassemble_*.cpp the formats.
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
  // Number of sources that the assembler prints.
  int explicit_sources() const;

  void alu();
  std::string source(int i) const;
  // Whether a conversion writes one byte of four, chosen by two bits: the third source's and the
  // result's.
  bool selects_bytes() const;
  // op_sel: one bit per source, and bit 3 for the destination, whatever the number of sources.
  unsigned op_sel() const;
  void dpp();
  void sdwa();
  void vop3p();
  void matrix();

  void sopp();
  // Text of the operands that s_set_gpr_idx_on and _mode name.
  std::string indexed_operands() const;
  void waitcnt(unsigned raw);
  void sendmsg(unsigned raw);
  void sopk();
  void smem();

  void ds();
  // Prints the mode of ds_swizzle_b32 (LLVM AMDGPUModifierSyntax, "swizzle").
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
