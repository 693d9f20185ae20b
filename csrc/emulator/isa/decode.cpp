#include "isa/decode.hpp"

#include <algorithm>
#include <cstring>

#include "isa/decoder.hpp"
#include "isa/inline_constants.hpp"

namespace hk::emulator {
namespace {

bool is_scalar(unsigned encoding) { return encoding < 128; }

}  // namespace

Decoder::Decoder(std::span<const uint32_t> words, Arch arch) : arch_(arch), words_(words) {
  // Padding with zeros keeps the field extraction simple; `size` is checked at the end.
  for (size_t i = 0; i < std::min<size_t>(4, words.size()); ++i) word_[i] = words[i];
}

bool Decoder::decode() {
  const auto [format, number] = encoding_of(word_[0]);
  if (format == Format::count) return false;
  entry_ = find_opcode(arch_, format, number, format == Format::mubuf && bit(16));
  if (!entry_ && format == Format::vop3p) {
    entry_ = find_opcode(arch_, Format::mfma, number);
    if (!entry_ && number == kScalePrefix) return decode_scaled_mfma() && fits();
  }
  if (!entry_) return false;
  out.opcode = entry_;
  switch (format) {
    case Format::sop2:
    case Format::sop1:
    case Format::sopc: decode_scalar(format); break;
    case Format::sopk: decode_sopk(); break;
    case Format::sopp: out.simm = int16_t(field(0, 16)); break;
    case Format::smem: decode_smem(); break;
    case Format::vop1:
    case Format::vop2:
    case Format::vopc: decode_vop(format); break;
    case Format::vop3: decode_vop3(); break;
    case Format::vop3p: entry_->format == Format::mfma ? decode_mfma(0) : decode_vop3p(); break;
    case Format::ds: decode_ds(); break;
    case Format::mubuf: decode_mubuf(); break;
    default: decode_flat(format); break;
  }
  return ok_ && fits();
}

bool Decoder::fits() {
  std::memcpy(out.words, word_, sizeof out.words);
  return out.size <= 4 * words_.size();
}

Operand Decoder::sgpr(unsigned encoding, unsigned dwords) {
  ok_ &= is_scalar(encoding) && encoding != 125;  // 125 is null on later archs
  if (dwords == 1) return make_operand(Kind::sgpr, encoding, 1);
  // Operands of 2 registers are aligned to 2, wider ones to 4. VCC, EXEC, ... are pairs, M0 is not.
  const unsigned special = encoding < 102   ? 0
                           : encoding < 108 ? 2
                           : encoding < 124 ? 16
                           : encoding < 126 ? 1
                                            : 2;
  ok_ &= special == 0 || (dwords <= special && encoding % 2 == 0);
  return make_operand(Kind::sgpr, encoding & ~(dwords == 2 ? 1u : 3u), dwords);
}

Operand Decoder::source(unsigned encoding, const OperandType& type) {
  if (type.role == Role::mask && is_scalar(encoding)) return sgpr(encoding, 2);
  const unsigned dwords = type.dwords();
  if (encoding >= 256) return vgpr(encoding - 256, dwords, type.role == Role::agpr);
  ok_ &= type.role != Role::vgpr && type.role != Role::agpr;
  if (is_scalar(encoding)) return sgpr(encoding, dwords);
  if (encoding == 251) return make_operand(Kind::vccz, encoding, 1);
  if (encoding == 252) return make_operand(Kind::execz, encoding, 1);
  if (encoding == 253) return make_operand(Kind::scc, encoding, 1);
  ok_ &= is_constant(encoding);
  if (encoding == kLiteral) out.size = 8;
  Operand operand = make_operand(Kind::constant, encoding, dwords);
  operand.value = ok_ ? constant_value(encoding, type, word_[1]) : 0;
  return operand;
}

void Decoder::add_implied() {
  for (int i = out.num_src; i < entry_->num_src; ++i) {
    if (entry_->src[i].role == Role::mask) add_src(make_operand(Kind::sgpr, kVccEncoding, 2));
    if (entry_->src[i].role == Role::tied) add_src(out.dst[0]);
  }
}

namespace {

OpcodeEntry make_unknown() {
  OpcodeEntry entry;
  entry.mnemonic = "unknown";
  entry.cls = Class::nop;
  return entry;
}
const OpcodeEntry kUnknown = make_unknown();

}  // namespace

bool is_unknown(const Instruction& instruction) { return instruction.opcode == &kUnknown; }

Instruction decode(std::span<const uint32_t> words, Arch arch, uint64_t pc) {
  Decoder decoder(words, arch);
  if (!decoder.decode()) {
    decoder.out = {};
    decoder.out.opcode = &kUnknown;
    for (size_t i = 0; i < std::min<size_t>(4, words.size()); ++i) decoder.out.words[i] = words[i];
  }
  decoder.out.pc = pc;
  return decoder.out;
}

DecodedText decode_text(std::span<const std::byte> text, Arch arch) {
  std::vector<uint32_t> words(text.size() / 4);
  if (!words.empty()) std::memcpy(words.data(), text.data(), 4 * words.size());
  DecodedText decoded;
  decoded.index_of_pc.assign(words.size(), -1);
  for (size_t i = 0; i < words.size();) {
    decoded.index_of_pc[i] = int32_t(decoded.instructions.size());
    decoded.instructions.push_back(decode(std::span(words).subspan(i), arch, 4 * i));
    i += decoded.instructions.back().size / 4;
  }
  return decoded;
}

}  // namespace hk::emulator
