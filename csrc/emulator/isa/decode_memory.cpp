// Decodes DS, MUBUF, FLAT, GLOBAL and SCRATCH.
#include "isa/decoder.hpp"

namespace hk::emulator {

void Decoder::data(const OperandType& type, unsigned index, bool acc) {
  add_src(vgpr(index, type.dwords(), acc));
}

void Decoder::memory_bytes() {
  if (entry_->num_dst + entry_->num_src == 0) return;
  const OperandType& type = entry_->num_dst ? entry_->dst[0] : entry_->src[0];
  out.bytes = uint8_t(type.bits / 8 * (entry_->flags & kTwoOffsets ? 1 : type.count));
}

void Decoder::decode_ds() {
  out.size = 8;
  const bool acc = bit(25);
  out.gds = bit(16);
  out.offset = int32_t(entry_->flags & kTwoOffsets ? field(0, 8) : field(0, 16));
  if (entry_->flags & kTwoOffsets) out.offset1 = uint8_t(field(8, 8));
  if (entry_->num_dst) add_dst(vgpr(field(24, 8, 1), entry_->dst[0].dwords(), acc));
  if (!(entry_->flags & kNoAddress)) add_src(vgpr(field(0, 8, 1), 1));
  for (int i = 0; i < entry_->num_src; ++i) data(entry_->src[i], field(8 + 8 * i, 8, 1), acc);
  memory_bytes();
}

void Decoder::decode_mubuf() {
  out.size = 8;
  out.glc = bit(14);
  if (entry_->flags & kNoAddress) return;
  const bool acc = bit(23, 1);
  out.offset = int32_t(field(0, 12));
  out.offen = bit(12);
  out.idxen = bit(13);
  out.lds = bit(16);
  out.resource = sgpr(field(16, 5, 1) * 4, 4);
  const unsigned soffset = field(24, 8, 1);
  out.soffset = source(soffset, {Role::any});
  ok_ &= soffset != kLiteral;
  add_src(out.offen || out.idxen ? vgpr(field(0, 8, 1), out.offen && out.idxen ? 2 : 1)
                                 : Operand{});
  memory_data(field(8, 8, 1), field(8, 8, 1), acc);
}

void Decoder::decode_flat(Format format) {
  out.size = 8;
  const bool acc = bit(23, 1);
  out.glc = bit(16);
  // generic addresses have an unsigned offset of 12 bits, the others a signed one of 13
  out.offset = format == Format::flat ? int32_t(field(0, 12)) : int32_t(word_[0] << 19) >> 19;
  const unsigned saddr = field(16, 7, 1);
  const bool has_saddr = format != Format::flat && saddr != 0x7f;
  if (has_saddr) out.resource = sgpr(saddr, format == Format::scratch ? 1 : 2);
  const bool has_vaddr = format != Format::scratch || bit(13);
  const unsigned dwords = format == Format::scratch || has_saddr ? 1 : 2;
  add_src(has_vaddr ? vgpr(field(0, 8, 1), dwords) : Operand{});
  memory_data(field(24, 8, 1), field(8, 8, 1), acc);
}

void Decoder::memory_data(unsigned vdst, unsigned vdata, bool acc) {
  const bool atomic = entry_->cls == Class::global_atomic;
  const bool copy = entry_->cls == Class::lds_copy;
  if (entry_->num_dst && !copy && (!atomic || out.glc))
    add_dst(vgpr(vdst, entry_->dst[0].dwords(), acc));
  if (entry_->num_src) data(entry_->src[0], vdata, acc);
  memory_bytes();
}

}  // namespace hk::emulator
