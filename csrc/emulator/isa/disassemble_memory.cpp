// Prints DS, MUBUF, FLAT, GLOBAL and SCRATCH.
#include "isa/operand_text.hpp"
#include "isa/printer.hpp"

namespace hk::emulator {

void Printer::ds() {
  if (in_.num_dst) operand(operand_text(in_.dst[0], {}));
  for (int i = 0; i < in_.num_src; ++i) operand(operand_text(in_.src[i], {}));
  if (entry_.mnemonic == "ds_swizzle_b32")
    swizzle();
  else if (entry_.flags & kTwoOffsets) {
    if (in_.offset) add(format("offset0:%d", in_.offset));
    if (in_.offset1) add(format("offset1:%d", int(in_.offset1)));
  } else if (in_.offset)
    add(format("offset:%d", in_.offset));
}

void Printer::swizzle() {
  const unsigned o = uint16_t(in_.offset);
  if (o == 0) return;
  if (o >> 8 == 0x80)
    return add(
        format("offset:swizzle(QUAD_PERM,%u,%u,%u,%u)", o & 3, o >> 2 & 3, o >> 4 & 3, o >> 6 & 3));
  const unsigned and_mask = o & 31, or_mask = o >> 5 & 31, xor_mask = o >> 10 & 31;
  if (o >= 0xe000) return add(format("offset:swizzle(FFT,%u)", o & 31));
  if (o >= 0xc000) return add(format("offset:swizzle(ROTATE,%u,%u)", o >> 10 & 1, o >> 5 & 31));
  if (o >> 15) return add(format("offset:%u", o));
  const auto power = [](unsigned v) { return v && (v & (v - 1)) == 0; };
  if (and_mask == 31 && or_mask == 0 && power(xor_mask))
    return add(format("offset:swizzle(SWAP,%u)", xor_mask));
  if (and_mask == 31 && or_mask == 0 && xor_mask && power(xor_mask + 1))
    return add(format("offset:swizzle(REVERSE,%u)", xor_mask + 1));
  const unsigned group = 32 - and_mask;
  if (xor_mask == 0 && group > 1 && group < 32 && power(group) && or_mask < group)
    return add(format("offset:swizzle(BROADCAST,%u,%u)", group, or_mask));
  char mask[6] = {};
  for (int i = 0; i < 5; ++i) {
    const unsigned m = 16u >> i;
    const bool fixed = !(and_mask & m) || or_mask & m;  // the lane's bit does not matter
    mask[i] = fixed ? ((or_mask ^ xor_mask) & m ? '1' : '0') : xor_mask & m ? 'i' : 'p';
  }
  add(std::string("offset:swizzle(BITMASK_PERM,\"") + mask + "\")");
}

void Printer::cache_policy(bool sc0, bool nt, bool sc1) {
  flag(sc0, "sc0");
  flag(nt, "nt");
  flag(sc1, "sc1");
}

void Printer::mubuf() {
  if (!(entry_.flags & kNoAddress)) {
    if (!in_.lds) operand(operand_text(in_.num_src > 1 ? in_.src[1] : in_.dst[0], {}));
    operand(operand_text(in_.src[0], {}));
    operand(operand_text(in_.resource, {}));
    operand(operand_text(in_.soffset, {}));
    flag(in_.idxen, "idxen");
    flag(in_.offen, "offen");
    if (in_.offset) add(format("offset:%d", in_.offset));
  }
  cache_policy(bit(14), bit(17), bit(15));
  flag(in_.lds, "lds");
}

void Printer::flat() {
  if (in_.num_dst) operand(operand_text(in_.dst[0], {}));
  operand(operand_text(in_.src[0], {}));
  if (in_.num_src > 1) operand(operand_text(in_.src[1], {}));
  if (encoding_ != Format::flat) operand(operand_text(in_.resource, {}));
  if (in_.offset) add(format("offset:%d", in_.offset));
  cache_policy(bit(16), bit(17), bit(25));
}

}  // namespace hk::emulator
