// Prints VOP1, VOP2, VOPC, VOP3, VOP3P, MFMA, and the scalar formats that print like them.
#include "isa/encoding.hpp"
#include "isa/operand_text.hpp"
#include "isa/printer.hpp"

namespace hk::emulator {
namespace {

// Whether an operand prints as a number. Apertures are constants to the machine, but registers to
// the assembler.
bool is_number(const Operand& operand) {
  return operand.kind == Kind::constant && !(operand.index >= kSharedBase && operand.index <= 239);
}

}  // namespace

void Printer::alu() {
  for (int i = 0; i < in_.num_dst; ++i) operand(operand_text(in_.dst[i], entry_.dst[i]));
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

std::string Printer::source(int i) const {
  const Operand& operand = in_.src[i];
  const OperandType& type = entry_.src[i];
  std::string text = operand_text(operand, type);
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

bool Printer::selects_bytes() const {
  const std::string_view name = entry_.mnemonic;
  return name.starts_with("v_cvt_scalef32_pk_fp4_") || name == "v_cvt_sr_fp8_f32" ||
         name == "v_cvt_sr_bf8_f32";
}

unsigned Printer::op_sel() const {
  const int n = explicit_sources();
  return (in_.op_sel & ((1u << n) - 1)) | unsigned(in_.op_sel >> 3 & 1) << n;
}

void Printer::dpp() {
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

void Printer::sdwa() {
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

void Printer::vop3p() {
  operand(operand_text(in_.dst[0], entry_.dst[0]));
  const int n = explicit_sources();
  const unsigned all = (1u << n) - 1;
  const bool mix = entry_.mnemonic.starts_with("v_fma_mix");
  for (int i = 0; i < n; ++i) operand(source(i));
  if (entry_.cls == Class::valu && entry_.format == Format::mfma) return;  // v_accvgpr
  if (in_.op_sel & all) list("op_sel", in_.op_sel, n);
  const bool bytes = entry_.mnemonic.starts_with("v_dot4") || entry_.mnemonic.starts_with("v_dot8");
  if (!bytes && (in_.op_sel_hi & all) != (mix ? 0 : all)) list("op_sel_hi", in_.op_sel_hi, n);
  if (!mix && in_.neg_lo & all) list("neg_lo", in_.neg_lo, n);
  if (!mix && in_.neg_hi & all) list("neg_hi", in_.neg_hi, n);
  flag(in_.clamp, "clamp");
}

void Printer::matrix() {
  operand(operand_text(in_.dst[0], entry_.dst[0]));
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

}  // namespace hk::emulator
