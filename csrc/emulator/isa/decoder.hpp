// Decoder of one instruction. decode.cpp decodes operands, decode_*.cpp the formats.
#pragma once

#include <cstdint>
#include <span>

#include "isa/encoding.hpp"
#include "isa/instruction.hpp"
#include "isa/opcodes.hpp"

namespace hk::emulator {

inline Operand make_operand(Kind kind, unsigned index, unsigned dwords) {
  Operand operand;
  operand.kind = kind;
  operand.dwords = uint8_t(dwords);
  operand.index = uint16_t(index);
  return operand;
}

class Decoder {
 public:
  Decoder(std::span<const uint32_t> words, Arch arch);
  bool decode();  // whether the words are an instruction

  Instruction out;

 private:
  using Role = OperandType::Role;

  unsigned field(int low, int width, int word = 0) const {
    return bits_of(word_[word], low, width);
  }
  bool bit(int index, int word = 0) const { return word_[word] >> index & 1; }
  bool fits();

  // --- operands ---------------------------------------------------------------------------

  Operand& add_dst(Operand operand) { return out.dst[out.num_dst++] = operand; }
  Operand& add_src(Operand operand) { return out.src[out.num_src++] = operand; }
  Operand sgpr(unsigned encoding, unsigned dwords);
  Operand vgpr(unsigned index, unsigned dwords, bool acc = false) {
    return make_operand(acc ? Kind::agpr : Kind::vgpr, index, dwords);
  }
  // Decodes the 8 or 9 bits of a source field.
  Operand source(unsigned encoding, const OperandType& type);
  // Adds sources that the encoding implies: carry-in in VCC, the tied accumulator.
  void add_implied();

  // --- formats ----------------------------------------------------------------------------

  void decode_scalar(Format format);
  void decode_sopk();
  void decode_smem();

  void vector_dst(unsigned encoding);
  void swap_operands();
  static void set_modifiers(Operand& operand, bool negate, bool absolute) {
    operand.negate = negate;
    operand.absolute = absolute;
  }
  void decode_vop(Format format);
  void decode_dpp();
  void decode_sdwa(Format format);
  void decode_vop3();
  void decode_vop3p();

  // Decodes a matrix instruction; `at`: the word at which it starts.
  void decode_mfma(int at);
  // Number of registers of A or B by format: FP8 and BF8 8, FP6 and BF6 6, FP4 4.
  uint8_t f8f6f4_dwords(unsigned format);
  // gfx950: v_mfma_ld_scale_b32 and the matrix instruction form one instruction of 16 bytes.
  bool decode_scaled_mfma();

  void data(const OperandType& type, unsigned index, bool acc);
  void memory_bytes();
  void decode_ds();
  void decode_mubuf();
  void decode_flat(Format format);
  // Decodes the data operands of MUBUF and FLAT: destination and source.
  void memory_data(unsigned vdst, unsigned vdata, bool acc);

  bool ok_ = true;  // false: an operand is invalid
  Arch arch_;
  std::span<const uint32_t> words_;
  uint32_t word_[4] = {};
  const OpcodeEntry* entry_ = nullptr;
};

}  // namespace hk::emulator
