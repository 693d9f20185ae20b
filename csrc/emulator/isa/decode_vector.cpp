// Decodes VOP1, VOP2, VOPC, VOP3 and VOP3P, with DPP and SDWA.
#include <algorithm>

#include "isa/decoder.hpp"

namespace hk::emulator {

void Decoder::vector_dst(unsigned encoding) {
  for (int i = 0; i < entry_->num_dst; ++i) {
    const OperandType& type = entry_->dst[i];
    if (type.role == Role::mask)
      add_dst(make_operand(Kind::sgpr, kVccEncoding, 2));
    else if (type.role == Role::sgpr)
      add_dst(sgpr(encoding, 1));
    else
      add_dst(vgpr(encoding, type.dwords(), type.role == Role::agpr));
  }
}

void Decoder::swap_operands() {  // both are read and written
  out.dst[1] = out.src[0];
  out.src[1] = out.src[0];
  out.src[0] = out.dst[0];
  out.num_src = out.num_dst = 2;
}

void Decoder::decode_vop(Format format) {
  const unsigned src0 = field(0, 9);
  vector_dst(format == Format::vopc ? kVccEncoding : field(17, 8));
  if (src0 == kSdwa || src0 == kDpp) out.size = 8;
  if (src0 == kSdwa) {
    decode_sdwa(format);
  } else if (entry_->num_src > 0) {
    out.dpp = src0 == kDpp;
    // DPP swizzles a VGPR; the rest of the operand is in word 1
    add_src(source(out.dpp ? 256 + field(0, 8, 1) : src0, entry_->src[0]));
  }
  if (out.dpp) decode_dpp();
  if (entry_->flags & kSwaps) return swap_operands();
  const int explicit_sources = format == Format::vop1 ? 1 : 2;
  const bool literal_middle =
      entry_->mnemonic.ends_with("mk_f32") || entry_->mnemonic.ends_with("mk_f16");
  const bool literal_last =
      entry_->mnemonic.ends_with("ak_f32") || entry_->mnemonic.ends_with("ak_f16");
  if (literal_middle) add_src(source(kLiteral, entry_->src[1]));
  if (!out.sdwa && explicit_sources == 2) {
    Operand& operand = add_src(source(256 + field(9, 8), entry_->src[1]));
    if (out.dpp) set_modifiers(operand, bit(22, 1), bit(23, 1));
  }
  if (literal_last) add_src(source(kLiteral, entry_->src[2]));
  add_implied();
}

void Decoder::decode_dpp() {
  out.dpp_ctrl = uint16_t(field(8, 9, 1));
  out.bound_ctrl = bit(19, 1);
  out.bank_mask = uint8_t(field(24, 4, 1));
  out.row_mask = uint8_t(field(28, 4, 1));
  if (out.num_src) set_modifiers(out.src[0], bit(20, 1), bit(21, 1));
}

void Decoder::decode_sdwa(Format format) {
  out.sdwa = true;
  if (format == Format::vopc) {
    if (bit(15, 1)) out.dst[0] = sgpr(field(8, 7, 1), 2);
  } else {
    out.dst_sel = uint8_t(field(8, 3, 1));
    out.dst_unused = uint8_t(field(11, 2, 1));
    out.clamp = bit(13, 1);
    out.omod = uint8_t(field(14, 2, 1));
  }
  out.src0_sel = uint8_t(field(16, 3, 1));
  out.src0_sext = bit(19, 1);
  if (entry_->num_src < 1) return;
  const auto operand = [&](unsigned index, bool scalar, int i) {
    return source(scalar ? index : 256 + index, entry_->src[i]);
  };
  set_modifiers(add_src(operand(field(0, 8, 1), bit(23, 1), 0)), bit(20, 1), bit(21, 1));
  if (format == Format::vop1) return;
  out.src1_sel = uint8_t(field(24, 3, 1));
  out.src1_sext = bit(27, 1);
  set_modifiers(add_src(operand(field(9, 8), bit(31, 1), 1)), bit(28, 1), bit(29, 1));
}

void Decoder::decode_vop3() {
  out.size = 8;
  const bool mask_dst = entry_->num_dst && entry_->dst[0].role == Role::mask;
  const bool carry = entry_->num_dst == 2 && entry_->dst[1].role == Role::mask;
  if (mask_dst)
    add_dst(sgpr(field(0, 8), 2));
  else
    vector_dst(field(0, 8));
  if (carry)
    out.dst[1] = sgpr(field(8, 7), 2);  // VOP3B: in the place of the absolute and op_sel bits
  else
    out.op_sel = uint8_t(field(11, 4));
  out.clamp = bit(15);
  const bool bitop = entry_->mnemonic.starts_with("v_bitop3");
  if (!bitop) out.omod = uint8_t(field(27, 2, 1));
  const int encoded = entry_->flags & kSwaps ? 1 : std::min<int>(entry_->num_src, 3);
  for (int i = 0; i < encoded; ++i) {
    if (entry_->src[i].role == Role::tied) continue;
    Operand& operand = add_src(source(field(9 * i, 9, 1), entry_->src[i]));
    ok_ &= operand.index != kLiteral || operand.kind != Kind::constant;
    if (!bitop) set_modifiers(operand, bit(29 + i, 1), !carry && bit(8 + i));
  }
  if (bitop) out.simm = int32_t(field(27, 2, 1) << 6 | field(8, 3) << 3 | field(29, 3, 1));
  if (entry_->flags & kSwaps) swap_operands();
  add_implied();
}

void Decoder::decode_vop3p() {
  out.size = 8;
  vector_dst(field(0, 8));
  out.clamp = bit(15);
  out.op_sel = uint8_t(field(11, 3));
  out.op_sel_hi = uint8_t(field(27, 2, 1) | unsigned(bit(14)) << 2);
  out.neg_lo = uint8_t(field(29, 3, 1));
  out.neg_hi = uint8_t(field(8, 3));
  const bool mix = entry_->mnemonic.starts_with("v_fma_mix");
  for (int i = 0; i < entry_->num_src && i < 3; ++i) {
    OperandType type = entry_->src[i];
    if (mix && (out.op_sel_hi >> i & 1)) type.bits = 16;
    Operand& operand = add_src(source(field(9 * i, 9, 1), type));
    ok_ &= operand.kind != Kind::constant || operand.index != kLiteral;
    if (mix) set_modifiers(operand, out.neg_lo >> i & 1, out.neg_hi >> i & 1);
  }
}

}  // namespace hk::emulator
