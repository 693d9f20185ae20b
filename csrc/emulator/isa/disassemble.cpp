// An instruction as llvm-objdump prints it.
#include <cstdarg>
#include <cstdio>
#include <string>

#include "isa/decode.hpp"
#include "isa/encoding.hpp"
#include "isa/opcodes.hpp"

namespace hk::emulator {
namespace {

using Role = OperandType::Role;

std::string format(const char* pattern, auto... values) {
  char text[96];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

std::string range(const char* name, unsigned index, unsigned dwords) {
  if (dwords == 1) return format("%s%u", name, index);
  return format("%s[%u:%u]", name, index, index + dwords - 1);
}

std::string scalar_register(unsigned index, unsigned dwords) {
  struct Pair {
    unsigned index;
    const char* name;
  };
  constexpr Pair kPairs[] = {
      {102, "flat_scratch"}, {104, "xnack_mask"}, {106, "vcc"}, {126, "exec"}};
  for (auto [first, name] : kPairs) {
    if (index == first && dwords == 2) return name;
    if (dwords == 1 && index == first) return std::string(name) + "_lo";
    if (dwords == 1 && index == first + 1) return std::string(name) + "_hi";
  }
  if (index == 124) return "m0";
  if (index >= 108 && index < 124) return range("ttmp", index - 108, dwords);
  return range("s", index, dwords);
}

std::string constant(const Operand& operand, const OperandType& type) {
  constexpr const char* kFloats[] = {"0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0"};
  const unsigned encoding = operand.index;
  if (encoding <= 192) return format("%d", int(encoding) - 128);
  if (encoding <= 208) return format("%d", 192 - int(encoding));
  if (encoding >= 240 && encoding < 248) return kFloats[encoding - 240];
  if (encoding == 248) return type.bits == 64 ? "0.15915494309189532" : "0.15915494";
  switch (encoding) {
    case kSharedBase: return "src_shared_base";
    case kSharedLimit: return "src_shared_limit";
    case kPrivateBase: return "src_private_base";
    case kPrivateLimit: return "src_private_limit";
    case 239: return "src_pops_exiting_wave_id";
    default: break;
  }
  const uint64_t literal =
      type.base == 'f' && type.bits == 64 ? operand.value >> 32 : operand.value;
  return format("0x%x", unsigned(literal));
}

// A number as the assembler may have it inline, else in hexadecimal.
std::string inline_or_hex(uint32_t value) {
  constexpr uint32_t kFloats[] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000,
                                  0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};
  constexpr const char* kNames[] = {"0.5",  "-0.5", "1.0",  "-1.0",      "2.0",
                                    "-2.0", "4.0",  "-4.0", "0.15915494"};
  if (int32_t(value) >= -16 && int32_t(value) <= 64) return format("%d", int32_t(value));
  for (size_t i = 0; i < std::size(kFloats); ++i)
    if (kFloats[i] == value) return kNames[i];
  return format("0x%x", value);
}

std::string plain(const Operand& operand, const OperandType& type) {
  switch (operand.kind) {
    case Kind::sgpr: return scalar_register(operand.index, operand.dwords);
    case Kind::vgpr: return range("v", operand.index, operand.dwords);
    case Kind::agpr: return range("a", operand.index, operand.dwords);
    case Kind::constant: return constant(operand, type);
    case Kind::scc: return "src_scc";
    case Kind::vccz: return "src_vccz";
    case Kind::execz: return "src_execz";
    case Kind::none: return "off";
  }
  return "";
}

class Printer {
 public:
  explicit Printer(const Instruction& instruction)
      : in_(instruction), entry_(entry_of(instruction)),
        encoding_(encoding_of(instruction.words[0]).first) {}

  std::string print() {
    text_ = std::string(in_.opcode->mnemonic) + suffix();
    switch (encoding_) {
      case Format::sopp: sopp(); break;
      case Format::sopk: sopk(); break;
      case Format::smem: smem(); break;
      case Format::ds: ds(); break;
      case Format::mubuf: mubuf(); break;
      case Format::flat:
      case Format::scratch:
      case Format::global: flat(); break;
      case Format::vop3p: entry_.cls == Class::matrix ? matrix() : vop3p(); break;
      default: alu(); break;
    }
    return text_;
  }

 private:
  bool bit(int index, int word = 0) const { return in_.words[word] >> index & 1; }

  std::string suffix() const {
    const Format base = entry_.format;
    if (base != Format::vop1 && base != Format::vop2 && base != Format::vopc) return "";
    if (in_.sdwa) return "_sdwa";
    if (in_.dpp) return "_dpp";
    if (entry_.flags & kNoVop3 || entry_.num_dst == 0) return "";
    return encoding_ == Format::vop3 ? "_e64" : "_e32";
  }

  void operand(const std::string& text) {
    text_ += first_ ? " " : ", ";
    text_ += text;
    first_ = false;
  }
  void add(const std::string& text) { text_ += " " + text; }
  void flag(bool set, const char* name) {
    if (set) add(name);
  }
  void list(const char* name, unsigned bits, int n) {
    text_ += std::string(" ") + name + ":[";
    for (int i = 0; i < n; ++i) text_ += (i ? "," : "") + std::string(bits >> i & 1 ? "1" : "0");
    text_ += "]";
  }
  // Sources that the assembler prints.
  int explicit_sources() const {
    int n = in_.num_src;
    while (n && entry_.src[n - 1].role == Role::tied) --n;
    return entry_.flags & kSwaps ? 0 : n;
  }

  // --- ALU --------------------------------------------------------------------------------

  // Apertures are constants to the machine, registers to the assembler.
  static bool is_number(const Operand& operand) {
    return operand.kind == Kind::constant &&
           !(operand.index >= kSharedBase && operand.index <= 239);
  }

  std::string source(int i) const {
    const Operand& operand = in_.src[i];
    const OperandType& type = entry_.src[i];
    std::string text = plain(operand, type);
    // an inline float as a vector instruction's 16-bit integer
    if (entry_.format >= Format::vop1 && type.bits == 16 && type.count == 1 && type.base != 'f' &&
        type.base != 'B' && operand.kind == Kind::constant && operand.index >= 240 &&
        operand.index <= 248)
      text = format("0x%x", unsigned(operand.value));
    const bool sext = i == 0 ? in_.src0_sext : i == 1 && in_.src1_sext;
    if (in_.sdwa && sext) text = "sext(" + text + ")";
    if (operand.absolute) text = "|" + text + "|";
    if (operand.negate)
      text = is_number(operand) && !operand.absolute ? "neg(" + text + ")" : "-" + text;
    return text;
  }

  void alu() {
    for (int i = 0; i < in_.num_dst; ++i) operand(plain(in_.dst[i], entry_.dst[i]));
    for (int i = 0; i < explicit_sources(); ++i) operand(source(i));
    if (entry_.mnemonic == "s_set_gpr_idx_on") operand(indexed_operands());
    if (encoding_ == Format::vop3) {
      if (entry_.mnemonic.starts_with("v_bitop3") && in_.simm)
        add(format(in_.simm < 10 ? "bitop3:%u" : "bitop3:0x%x", unsigned(in_.simm)));
      if (entry_.flags & kSwaps)
        flag(in_.op_sel & 2, "bound_ctrl:1"), flag(in_.op_sel & 1, "fi:1");
      else if (in_.op_sel && selects_bytes())
        list("op_sel", in_.op_sel, 4);
      else if (in_.op_sel)
        list("op_sel", op_sel(), explicit_sources() + 1);
    }
    flag(in_.clamp, "clamp");
    constexpr const char* kOmod[] = {"", "mul:2", "mul:4", "div:2"};
    flag(in_.omod, kOmod[in_.omod]);
    if (in_.dpp) dpp();
    if (in_.sdwa) sdwa();
  }

  // Conversions that write one byte of four, told by two bits: the third source's and the result's.
  bool selects_bytes() const {
    const std::string_view name = entry_.mnemonic;
    return name.starts_with("v_cvt_scalef32_pk_fp4_") || name == "v_cvt_sr_fp8_f32" ||
           name == "v_cvt_sr_bf8_f32";
  }

  // One bit per source, then the destination's, which is bit 3 however many sources there are.
  unsigned op_sel() const {
    const int n = explicit_sources();
    return (in_.op_sel & ((1u << n) - 1)) | unsigned(in_.op_sel >> 3 & 1) << n;
  }

  void dpp() {
    const unsigned control = in_.dpp_ctrl, n = control & 15;
    if (control < 0x100)
      add(format("quad_perm:[%u,%u,%u,%u]", control & 3, control >> 2 & 3, control >> 4 & 3,
                 control >> 6));
    else if (control < 0x110)
      add(format("row_shl:%u", n));
    else if (control < 0x120)
      add(format("row_shr:%u", n));
    else if (control < 0x130)
      add(format("row_ror:%u", n));
    else if (control == 0x130)
      add("wave_shl:1");
    else if (control == 0x134)
      add("wave_rol:1");
    else if (control == 0x138)
      add("wave_shr:1");
    else if (control == 0x13c)
      add("wave_ror:1");
    else if (control == 0x140)
      add("row_mirror");
    else if (control == 0x141)
      add("row_half_mirror");
    else if (control == 0x142)
      add("row_bcast:15");
    else if (control == 0x143)
      add("row_bcast:31");
    else
      add(format("row_newbcast:%u", n));
    add(format("row_mask:0x%x bank_mask:0x%x", unsigned(in_.row_mask), unsigned(in_.bank_mask)));
    flag(in_.bound_ctrl, "bound_ctrl:1");
  }

  void sdwa() {
    constexpr const char* kSel[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3",
                                    "WORD_0", "WORD_1", "DWORD",  "?"};
    constexpr const char* kUnused[] = {"UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE", "?"};
    // no part of the result to choose
    const bool whole =
        in_.num_dst && (in_.dst[0].dwords == 2 || entry_.mnemonic.starts_with("v_cvt_f32_fp8") ||
                        entry_.mnemonic.starts_with("v_cvt_f32_bf8"));
    if (entry_.format != Format::vopc && in_.num_dst && !whole) {
      add(std::string("dst_sel:") + kSel[in_.dst_sel]);
      add(std::string("dst_unused:") + kUnused[in_.dst_unused]);
    }
    if (in_.num_src) add(std::string("src0_sel:") + kSel[in_.src0_sel]);
    if (in_.num_src > 1 && entry_.format != Format::vop1)
      add(std::string("src1_sel:") + kSel[in_.src1_sel]);
  }

  void vop3p() {
    operand(plain(in_.dst[0], entry_.dst[0]));
    const int n = explicit_sources();
    const unsigned all = (1u << n) - 1;
    const bool mix = entry_.mnemonic.starts_with("v_fma_mix");
    for (int i = 0; i < n; ++i) operand(source(i));
    if (entry_.cls == Class::valu && entry_.format == Format::mfma) return;  // v_accvgpr
    if (in_.op_sel & all) list("op_sel", in_.op_sel, n);
    const bool bytes =
        entry_.mnemonic.starts_with("v_dot4") || entry_.mnemonic.starts_with("v_dot8");
    if (!bytes && (in_.op_sel_hi & all) != (mix ? 0 : all)) list("op_sel_hi", in_.op_sel_hi, n);
    if (!mix && in_.neg_lo & all) list("neg_lo", in_.neg_lo, n);
    if (!mix && in_.neg_hi & all) list("neg_hi", in_.neg_hi, n);
    flag(in_.clamp, "clamp");
  }

  void matrix() {
    operand(plain(in_.dst[0], entry_.dst[0]));
    const int n = explicit_sources();
    for (int i = 0; i < n; ++i) operand(source(i));
    const bool f8f6f4 = entry_.mnemonic.ends_with("f8f6f4");
    if (entry_.format == Format::scaled_mfma) {
      if (in_.op_sel) list("op_sel", in_.op_sel, 3);
      if (in_.op_sel_hi != 7) list("op_sel_hi", in_.op_sel_hi, 3);
    }
    if (in_.cbsz) add(format("cbsz:%u", unsigned(in_.cbsz)));
    if (in_.abid && !f8f6f4) add(format("abid:%u", unsigned(in_.abid)));
    if (!in_.blgp) return;
    if (entry_.dst[0].bits == 64)  // FP64 has no layouts to choose from: these bits negate
      list("neg", in_.blgp, 3);
    else
      add(format("blgp:%u", unsigned(in_.blgp)));
  }

  // --- scalar -----------------------------------------------------------------------------

  void sopp() {
    const unsigned raw = uint16_t(in_.simm);
    const std::string_view name = entry_.mnemonic;
    if (entry_.num_src == 0) return;
    if (entry_.cls == Class::branch) return operand(format("%u", raw));
    if (entry_.cls == Class::wait) return waitcnt(raw);
    if (entry_.cls == Class::end) {
      if (raw) operand(format("%u", raw));
      return;
    }
    if (name.starts_with("s_sendmsg")) return sendmsg(raw);
    if (name == "s_set_gpr_idx_mode") return operand(indexed_operands());
    operand(inline_or_hex(raw));
  }

  // Of s_set_gpr_idx_on and _mode.
  std::string indexed_operands() const {
    if (in_.simm & ~15) return format("0x%x", unsigned(uint16_t(in_.simm)));
    std::string names;
    constexpr const char* kNames[] = {"SRC0", "SRC1", "SRC2", "DST"};
    for (int i = 0; i < 4; ++i)
      if (in_.simm >> i & 1) names += (names.empty() ? "" : ",") + std::string(kNames[i]);
    return "gpr_idx(" + names + ")";
  }

  void waitcnt(unsigned raw) {
    const unsigned vm = (raw & 15) | (raw >> 14 & 3) << 4, exp = raw >> 4 & 7, lgkm = raw >> 8 & 15;
    const bool all = vm == 63 && exp == 7 && lgkm == 15;  // then the assembler wants them all
    if (vm != 63 || all) add(format("vmcnt(%u)", vm));
    if (exp != 7 || all) add(format("expcnt(%u)", exp));
    if (lgkm != 15 || all) add(format("lgkmcnt(%u)", lgkm));
  }

  void sendmsg(unsigned raw) {
    constexpr const char* kNames[] = {nullptr,
                                      "MSG_INTERRUPT",
                                      "MSG_GS",
                                      "MSG_GS_DONE",
                                      "MSG_SAVEWAVE",
                                      "MSG_STALL_WAVE_GEN",
                                      "MSG_HALT_WAVES",
                                      "MSG_ORDERED_PS_DONE",
                                      "MSG_EARLY_PRIM_DEALLOC",
                                      "MSG_GS_ALLOC_REQ",
                                      "MSG_GET_DOORBELL",
                                      "MSG_GET_DDID",
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr};
    if (raw < 16 && kNames[raw] && raw != 2 && raw != 3)
      operand(format("sendmsg(%s)", kNames[raw]));
    else
      operand(format("0x%x", raw));
  }

  void sopk() {
    const unsigned raw = uint16_t(in_.simm);
    const bool setreg = entry_.mnemonic.starts_with("s_setreg");
    if (setreg) operand(hwreg(raw));
    if (in_.num_dst)
      operand(plain(in_.dst[0], entry_.dst[0]));
    else if (in_.src[0].kind == Kind::constant)
      operand(inline_or_hex(uint32_t(in_.src[0].value)));
    else
      operand(plain(in_.src[0], entry_.src[0]));
    if (setreg) return;
    if (entry_.mnemonic.starts_with("s_getreg")) return operand(hwreg(raw));
    if (entry_.cls == Class::branch) return operand(format("%u", raw));
    operand(format("0x%x", raw));
  }

  static std::string hwreg(unsigned raw) {
    constexpr const char* kNames[] = {nullptr,
                                      "HW_REG_MODE",
                                      "HW_REG_STATUS",
                                      "HW_REG_TRAPSTS",
                                      "HW_REG_HW_ID",
                                      "HW_REG_GPR_ALLOC",
                                      "HW_REG_LDS_ALLOC",
                                      "HW_REG_IB_STS",
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      "HW_REG_SH_MEM_BASES",
                                      "HW_REG_TBA_LO",
                                      "HW_REG_TBA_HI",
                                      "HW_REG_TMA_LO",
                                      "HW_REG_TMA_HI",
                                      "HW_REG_XCC_ID",
                                      "HW_REG_SQ_PERF_SNAPSHOT_DATA",
                                      "HW_REG_SQ_PERF_SNAPSHOT_DATA1",
                                      "HW_REG_SQ_PERF_SNAPSHOT_PC_LO",
                                      "HW_REG_SQ_PERF_SNAPSHOT_PC_HI"};
    const unsigned id = raw & 63, offset = raw >> 6 & 31, size = (raw >> 11) + 1;
    const bool named = id < std::size(kNames) && kNames[id];
    std::string text = named ? std::string("hwreg(") + kNames[id] : format("hwreg(%u", id);
    if (offset != 0 || size != 32) text += format(", %u, %u", offset, size);
    return text + ")";
  }

  void smem() {
    if (in_.num_dst) operand(plain(in_.dst[0], entry_.dst[0]));
    if (in_.num_src == 0) return;
    operand(plain(in_.src[0], {}));
    const bool imm = bit(17), soffset = in_.soffset.kind != Kind::none;
    if (soffset) operand(plain(in_.soffset, {}));
    const std::string offset =
        in_.offset < 0 ? format("-0x%x", -in_.offset) : format("0x%x", in_.offset);
    if (imm && soffset)
      add("offset:" + offset);
    else if (imm)
      operand(offset);
    flag(in_.glc, "glc");
  }

  // --- memory -----------------------------------------------------------------------------

  void ds() {
    if (in_.num_dst) operand(plain(in_.dst[0], {}));
    for (int i = 0; i < in_.num_src; ++i) operand(plain(in_.src[i], {}));
    if (entry_.mnemonic == "ds_swizzle_b32")
      swizzle();
    else if (entry_.flags & kTwoOffsets) {
      if (in_.offset) add(format("offset0:%d", in_.offset));
      if (in_.offset1) add(format("offset1:%d", int(in_.offset1)));
    } else if (in_.offset)
      add(format("offset:%d", in_.offset));
  }

  // The modes of ds_swizzle_b32 (LLVM AMDGPUModifierSyntax, "swizzle").
  void swizzle() {
    const unsigned o = uint16_t(in_.offset);
    if (o == 0) return;
    if (o >> 8 == 0x80)
      return add(format("offset:swizzle(QUAD_PERM,%u,%u,%u,%u)", o & 3, o >> 2 & 3, o >> 4 & 3,
                        o >> 6 & 3));
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
      const bool fixed = !(and_mask & m) || or_mask & m;  // whatever the lane's bit is
      mask[i] = fixed ? ((or_mask ^ xor_mask) & m ? '1' : '0') : xor_mask & m ? 'i' : 'p';
    }
    add(std::string("offset:swizzle(BITMASK_PERM,\"") + mask + "\")");
  }

  void cache_policy(bool sc0, bool nt, bool sc1) {
    flag(sc0, "sc0");
    flag(nt, "nt");
    flag(sc1, "sc1");
  }

  void mubuf() {
    if (!(entry_.flags & kNoAddress)) {
      if (!in_.lds) operand(plain(in_.num_src > 1 ? in_.src[1] : in_.dst[0], {}));
      operand(plain(in_.src[0], {}));
      operand(plain(in_.resource, {}));
      operand(plain(in_.soffset, {}));
      flag(in_.idxen, "idxen");
      flag(in_.offen, "offen");
      if (in_.offset) add(format("offset:%d", in_.offset));
    }
    cache_policy(bit(14), bit(17), bit(15));
    flag(in_.lds, "lds");
  }

  void flat() {
    if (in_.num_dst) operand(plain(in_.dst[0], {}));
    operand(plain(in_.src[0], {}));
    if (in_.num_src > 1) operand(plain(in_.src[1], {}));
    if (encoding_ != Format::flat) operand(plain(in_.resource, {}));
    if (in_.offset) add(format("offset:%d", in_.offset));
    cache_policy(bit(16), bit(17), bit(25));
  }

  const Instruction& in_;
  const OpcodeEntry& entry_;
  Format encoding_;
  std::string text_;
  bool first_ = true;
};

}  // namespace

std::string to_string(const Instruction& instruction) {
  if (is_unknown(instruction)) {  // how long it is, is not known either: two words, if there are
    if (instruction.words[1] == 0) return format("unknown 0x%08x", instruction.words[0]);
    return format("unknown 0x%08x 0x%08x", instruction.words[0], instruction.words[1]);
  }
  return Printer(instruction).print();
}

}  // namespace hk::emulator
