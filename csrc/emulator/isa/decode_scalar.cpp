// Decodes SOP1, SOP2, SOPC, SOPK and SMEM.
#include "isa/decoder.hpp"

namespace hk::emulator {

void Decoder::decode_scalar(Format format) {
  const int fields = format == Format::sop1 ? 1 : 2;
  if (entry_->num_dst) add_dst(sgpr(field(16, 7), entry_->dst[0].dwords()));
  for (int i = 0; i < entry_->num_src && i < fields; ++i) {
    // s_set_gpr_idx_on: the field itself
    if (entry_->src[i].role == Role::simm16)
      out.simm = int32_t(field(8 * i, 8));
    else if (entry_->src[i].role != Role::tied)
      add_src(source(field(8 * i, 8), entry_->src[i]));
  }
  add_implied();
}

void Decoder::decode_sopk() {
  out.simm = int16_t(field(0, 16));
  const Operand reg = sgpr(field(16, 7), (entry_->num_dst ? entry_->dst : entry_->src)->dwords());
  if (entry_->num_dst) add_dst(reg);
  for (int i = 0; i < entry_->num_src; ++i) {
    if (entry_->src[i].role == Role::tied) {
      add_src(out.dst[0]);
    } else if (entry_->src[i].role != Role::simm16) {
      // s_setreg_imm32_b32 has a literal in the place of the register
      const bool literal = entry_->mnemonic == "s_setreg_imm32_b32";
      add_src(literal ? source(kLiteral, entry_->src[i]) : reg);
    } else {  // compares as unsigned see it zero-extended
      const bool is_unsigned = entry_->mnemonic.ends_with("_u32");
      Operand operand = make_operand(Kind::constant, kLiteral, 1);
      operand.value = is_unsigned ? uint16_t(out.simm) : uint32_t(out.simm);
      add_src(operand);
    }
  }
}

void Decoder::decode_smem() {
  out.size = 8;
  out.glc = bit(16);
  const bool has_address = !(entry_->flags & kNoAddress);
  if (entry_->num_dst) {
    add_dst(sgpr(field(6, 7), entry_->dst[0].dwords()));
    out.bytes = uint8_t(4 * out.dst[0].dwords);
  }
  if (!has_address) return;
  const bool buffer = entry_->mnemonic.find("buffer") != std::string_view::npos;
  add_src(sgpr(field(0, 6) * 2, buffer ? 4 : 2));
  const bool imm = bit(17), soffset_en = bit(14);
  if (imm) out.offset = int32_t(word_[1] << 11) >> 11;
  if (soffset_en)
    out.soffset = sgpr(field(25, 7, 1), 1);
  else if (!imm)
    out.soffset = sgpr(field(0, 7, 1), 1);
}

}  // namespace hk::emulator
