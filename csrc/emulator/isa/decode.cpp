#include "isa/decode.hpp"

#include <cstring>

#include "isa/encoding.hpp"
#include "isa/opcodes.hpp"

namespace hk::emulator {
namespace {

using Role = OperandType::Role;

// Inline constants 240 to 248: 0.5 -0.5 1 -1 2 -2 4 -4 1/(2 pi).
constexpr uint16_t kHalf[] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000,
                              0xc000, 0x4400, 0xc400, 0x3118};
constexpr uint32_t kSingle[] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000,
                                0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};
constexpr uint64_t kDouble[] = {0x3fe0000000000000, 0xbfe0000000000000, 0x3ff0000000000000,
                                0xbff0000000000000, 0x4000000000000000, 0xc000000000000000,
                                0x4010000000000000, 0xc010000000000000, 0x3fc45f306dc9c882};

// Integers are sign-extended to the operand's width, at least 32 bits. Floats take the operand's
// type, in the low half of packed ones; a 16-bit integer operand sees the f32 pattern (LLVM,
// AMDGPUBaseInfo, getInlineEncodingV216).
uint64_t constant(unsigned encoding, const OperandType& type, uint32_t literal) {
  const bool wide = type.bits == 64;
  if (encoding == kLiteral) {
    if (type.base == 'f' && wide) return uint64_t(literal) << 32;
    if (type.base == 'i' && wide) return uint64_t(int64_t(int32_t(literal)));
    return literal;
  }
  if (encoding <= 208) {
    const int64_t value = encoding <= 192 ? int64_t(encoding) - 128 : 192 - int64_t(encoding);
    return wide ? uint64_t(value) : uint32_t(value);
  }
  if (encoding < 240) {  // apertures: the high half of where LDS and scratch lie in generic memory
    switch (encoding) {
      case kSharedBase: return kSharedAperture;
      case kSharedLimit: return kSharedAperture + 0xffffffff;
      case kPrivateBase: return kPrivateAperture;
      case kPrivateLimit: return kPrivateAperture + 0xffffffff;
      default: return 0;
    }
  }
  const unsigned i = encoding - 240;
  if (wide) return kDouble[i];
  if (type.base == 'f' && type.bits == 16) return kHalf[i];
  if (type.base == 'B') return kSingle[i] >> 16;
  return kSingle[i];
}

Operand make(Kind kind, unsigned index, unsigned dwords) {
  Operand operand;
  operand.kind = kind;
  operand.dwords = uint8_t(dwords);
  operand.index = uint16_t(index);
  return operand;
}

bool is_scalar(unsigned encoding) { return encoding < 128; }
bool is_constant(unsigned encoding) {
  return (encoding >= 128 && encoding <= 208) || (encoding >= 235 && encoding <= 248) ||
         encoding == kLiteral;
}

// Decodes one instruction; `ok` turns false where an operand is not one.
class Decoder {
 public:
  Decoder(std::span<const uint32_t> words, Arch arch) : arch_(arch), words_(words) {
    // Padding with zeros keeps the field extraction simple; `size` is checked at the end.
    for (size_t i = 0; i < std::min<size_t>(4, words.size()); ++i) word_[i] = words[i];
  }

  bool decode() {
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
    return ok && fits();
  }

  Instruction out;

 private:
  unsigned field(int low, int width, int word = 0) const {
    return bits_of(word_[word], low, width);
  }
  bool bit(int index, int word = 0) const { return word_[word] >> index & 1; }
  bool fits() {
    std::memcpy(out.words, word_, sizeof out.words);
    return out.size <= 4 * words_.size();
  }

  // --- operands ---------------------------------------------------------------------------

  Operand& add_dst(Operand operand) { return out.dst[out.num_dst++] = operand; }
  Operand& add_src(Operand operand) { return out.src[out.num_src++] = operand; }

  Operand sgpr(unsigned encoding, unsigned dwords) {
    ok &= is_scalar(encoding) && encoding != 125;  // 125 is null on later archs
    if (dwords == 1) return make(Kind::sgpr, encoding, 1);
    // Wide operands are aligned: to 2 registers, from 4 on to 4. VCC, EXEC... are pairs, M0 is not.
    const unsigned special = encoding < 102   ? 0
                             : encoding < 108 ? 2
                             : encoding < 124 ? 16
                             : encoding < 126 ? 1
                                              : 2;
    ok &= special == 0 || (dwords <= special && encoding % 2 == 0);
    return make(Kind::sgpr, encoding & ~(dwords == 2 ? 1u : 3u), dwords);
  }
  Operand vgpr(unsigned index, unsigned dwords, bool acc = false) {
    return make(acc ? Kind::agpr : Kind::vgpr, index, dwords);
  }

  // The 8 or 9 bits of a source field.
  Operand source(unsigned encoding, const OperandType& type) {
    if (type.role == Role::mask && is_scalar(encoding)) return sgpr(encoding, 2);
    const unsigned dwords = type.dwords();
    if (encoding >= 256) return vgpr(encoding - 256, dwords, type.role == Role::agpr);
    ok &= type.role != Role::vgpr && type.role != Role::agpr;
    if (is_scalar(encoding)) return sgpr(encoding, dwords);
    if (encoding == 251) return make(Kind::vccz, encoding, 1);
    if (encoding == 252) return make(Kind::execz, encoding, 1);
    if (encoding == 253) return make(Kind::scc, encoding, 1);
    ok &= is_constant(encoding);
    if (encoding == kLiteral) {
      out.size = 8;
    }
    Operand operand = make(Kind::constant, encoding, dwords);
    operand.value = ok ? constant(encoding, type, word_[1]) : 0;
    return operand;
  }

  // What the encoding implies: carry-in in VCC, the tied accumulator.
  void add_implied() {
    for (int i = out.num_src; i < entry_->num_src; ++i) {
      if (entry_->src[i].role == Role::mask) add_src(make(Kind::sgpr, kVccEncoding, 2));
      if (entry_->src[i].role == Role::tied) add_src(out.dst[0]);
    }
  }

  // --- scalar -----------------------------------------------------------------------------

  void decode_scalar(Format format) {
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

  void decode_sopk() {
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
        Operand operand = make(Kind::constant, kLiteral, 1);
        operand.value = is_unsigned ? uint16_t(out.simm) : uint32_t(out.simm);
        add_src(operand);
      }
    }
  }

  void decode_smem() {
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

  // --- vector -----------------------------------------------------------------------------

  void vector_dst(unsigned encoding) {
    for (int i = 0; i < entry_->num_dst; ++i) {
      const OperandType& type = entry_->dst[i];
      if (type.role == Role::mask)
        add_dst(make(Kind::sgpr, kVccEncoding, 2));
      else if (type.role == Role::sgpr)
        add_dst(sgpr(encoding, 1));
      else
        add_dst(vgpr(encoding, type.dwords(), type.role == Role::agpr));
    }
  }

  void swap_operands() {  // both are read and written
    out.dst[1] = out.src[0];
    out.src[1] = out.src[0];
    out.src[0] = out.dst[0];
    out.num_src = out.num_dst = 2;
  }

  void decode_vop(Format format) {
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

  static void set_modifiers(Operand& operand, bool negate, bool absolute) {
    operand.negate = negate;
    operand.absolute = absolute;
  }

  void decode_dpp() {
    out.dpp_ctrl = uint16_t(field(8, 9, 1));
    out.bound_ctrl = bit(19, 1);
    out.bank_mask = uint8_t(field(24, 4, 1));
    out.row_mask = uint8_t(field(28, 4, 1));
    if (out.num_src) set_modifiers(out.src[0], bit(20, 1), bit(21, 1));
  }

  void decode_sdwa(Format format) {
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

  void decode_vop3() {
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
      ok &= operand.index != kLiteral || operand.kind != Kind::constant;
      if (!bitop) set_modifiers(operand, bit(29 + i, 1), !carry && bit(8 + i));
    }
    if (bitop) out.simm = int32_t(field(27, 2, 1) << 6 | field(8, 3) << 3 | field(29, 3, 1));
    if (entry_->flags & kSwaps) swap_operands();
    add_implied();
  }

  void decode_vop3p() {
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
      ok &= operand.kind != Kind::constant || operand.index != kLiteral;
      if (mix) set_modifiers(operand, out.neg_lo >> i & 1, out.neg_hi >> i & 1);
    }
  }

  // `at`: the word where the matrix instruction starts.
  void decode_mfma(int at) {
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
      ok &= encoding >= 256 || (i == 2 && is_constant(encoding) && encoding != kLiteral);
      if (!ok) return;
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

  // Registers of A or B by format: FP8 and BF8 8, FP6 and BF6 6, FP4 4.
  uint8_t f8f6f4_dwords(unsigned format) {
    ok &= format <= 4;
    return format <= 1 ? 8 : format <= 3 ? 6 : 4;
  }

  // gfx950: v_mfma_ld_scale_b32 and the matrix instruction are one of 16 bytes.
  bool decode_scaled_mfma() {
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
      ok &= encoding != kLiteral;
      if (ok) add_src(source(encoding, entry_->src[3 + i]));
    }
    return ok;
  }

  // --- memory -----------------------------------------------------------------------------

  void data(const OperandType& type, unsigned index, bool acc) {
    add_src(vgpr(index, type.dwords(), acc));
  }
  void memory_bytes() {
    if (entry_->num_dst + entry_->num_src == 0) return;
    const OperandType& type = entry_->num_dst ? entry_->dst[0] : entry_->src[0];
    out.bytes = uint8_t(type.bits / 8 * (entry_->flags & kTwoOffsets ? 1 : type.count));
  }

  void decode_ds() {
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

  void decode_mubuf() {
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
    ok &= soffset != kLiteral;
    add_src(out.offen || out.idxen ? vgpr(field(0, 8, 1), out.offen && out.idxen ? 2 : 1)
                                   : Operand{});
    memory_data(field(8, 8, 1), field(8, 8, 1), acc);
  }

  void decode_flat(Format format) {
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

  // The data of MUBUF and FLAT: where to, where from.
  void memory_data(unsigned vdst, unsigned vdata, bool acc) {
    const bool atomic = entry_->cls == Class::global_atomic;
    const bool copy = entry_->cls == Class::lds_copy;
    if (entry_->num_dst && !copy && (!atomic || out.glc))
      add_dst(vgpr(vdst, entry_->dst[0].dwords(), acc));
    if (entry_->num_src) data(entry_->src[0], vdata, acc);
    memory_bytes();
  }

  bool ok = true;
  Arch arch_;
  std::span<const uint32_t> words_;
  uint32_t word_[4] = {};
  const OpcodeEntry* entry_ = nullptr;
};

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
