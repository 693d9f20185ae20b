// Decodes MFMA, and the accumulator moves that are encoded like it.
#include "isa/decoder.hpp"
#include "isa/inline_constants.hpp"

namespace hk::emulator {

void Decoder::decode_mfma(int at) {
  out.size = uint8_t(4 * at + 8);
  const bool acc_cd = bit(15, at);
  if (entry_->cls != Class::matrix) {  // v_accvgpr_read, write
    const OperandType& src = entry_->src[0];
    vector_dst(field(0, 8, at));
    const unsigned encoding = field(0, 9, at + 1);
    add_src(source(encoding, src));
    return;
  }
  add_dst(vgpr(field(0, 8, at), entry_->dst[0].dwords(), acc_cd));
  out.cbsz = uint8_t(field(8, 3, at));
  out.abid = uint8_t(field(11, 4, at));
  out.blgp = uint8_t(field(29, 3, at + 1));
  for (int i = 0; i < 3; ++i) {
    OperandType type = entry_->src[i];
    const unsigned encoding = field(9 * i, 9, at + 1);
    ok_ &= encoding >= 256 || (i == 2 && is_constant(encoding) && encoding != kLiteral);
    if (!ok_) return;
    Operand& operand = add_src(source(encoding, type));
    const bool sparse_index = i == 2 && entry_->src[2].count == 1 && entry_->num_src == 4;
    const bool acc = i < 2 ? bit(27 + i, at + 1) : acc_cd && !sparse_index;
    if (operand.kind == Kind::vgpr && acc) operand.kind = Kind::agpr;
  }
  if (entry_->num_src == 4) add_src(out.dst[0]);
  if (entry_->mnemonic.ends_with("f8f6f4")) {
    out.src[0].dwords = f8f6f4_dwords(out.cbsz);
    out.src[1].dwords = f8f6f4_dwords(out.blgp);
  }
}

uint8_t Decoder::f8f6f4_dwords(unsigned format) {
  ok_ &= format <= 4;
  return format <= 1 ? 8 : format <= 3 ? 6 : 4;
}

bool Decoder::decode_scaled_mfma() {
  const auto [format, number] = encoding_of(word_[2]);
  if (format != Format::vop3p) return false;
  entry_ = find_opcode(arch_, Format::scaled_mfma, number);
  if (!entry_) return false;
  out.opcode = entry_;
  decode_mfma(2);
  out.op_sel = uint8_t(field(11, 3));
  out.op_sel_hi = uint8_t(field(27, 2, 1) | unsigned(bit(14)) << 2);
  for (int i = 0; i < 2; ++i) {
    const unsigned encoding = field(9 * i, 9, 1);
    ok_ &= encoding != kLiteral;
    if (ok_) add_src(source(encoding, entry_->src[3 + i]));
  }
  return ok_;
}

}  // namespace hk::emulator
