// Prints SOPP, SOPK and SMEM.
#include <algorithm>
#include <span>

#include "isa/operand_text.hpp"
#include "isa/printer.hpp"

namespace hk::emulator {
namespace {

struct Named {
  unsigned id;
  const char* name;
};
constexpr Named kMessages[] = {
    {1, "MSG_INTERRUPT"},    {4, "MSG_SAVEWAVE"},        {5, "MSG_STALL_WAVE_GEN"},
    {6, "MSG_HALT_WAVES"},   {7, "MSG_ORDERED_PS_DONE"}, {8, "MSG_EARLY_PRIM_DEALLOC"},
    {9, "MSG_GS_ALLOC_REQ"}, {10, "MSG_GET_DOORBELL"},   {11, "MSG_GET_DDID"},
};
constexpr Named kHardwareRegisters[] = {
    {1, "HW_REG_MODE"},
    {2, "HW_REG_STATUS"},
    {3, "HW_REG_TRAPSTS"},
    {4, "HW_REG_HW_ID"},
    {5, "HW_REG_GPR_ALLOC"},
    {6, "HW_REG_LDS_ALLOC"},
    {7, "HW_REG_IB_STS"},
    {15, "HW_REG_SH_MEM_BASES"},
    {16, "HW_REG_TBA_LO"},
    {17, "HW_REG_TBA_HI"},
    {18, "HW_REG_TMA_LO"},
    {19, "HW_REG_TMA_HI"},
    {20, "HW_REG_XCC_ID"},
    {21, "HW_REG_SQ_PERF_SNAPSHOT_DATA"},
    {22, "HW_REG_SQ_PERF_SNAPSHOT_DATA1"},
    {23, "HW_REG_SQ_PERF_SNAPSHOT_PC_LO"},
    {24, "HW_REG_SQ_PERF_SNAPSHOT_PC_HI"},
};

// Returns the name of `id`; null if it has none.
const char* find_name(std::span<const Named> all, unsigned id) {
  const auto found = std::ranges::find(all, id, &Named::id);
  return found == all.end() ? nullptr : found->name;
}

std::string hwreg(unsigned raw) {
  const unsigned id = raw & 63, offset = raw >> 6 & 31, size = (raw >> 11) + 1;
  const char* const name = find_name(kHardwareRegisters, id);
  std::string text = name ? std::string("hwreg(") + name : format("hwreg(%u", id);
  if (offset != 0 || size != 32) text += format(", %u, %u", offset, size);
  return text + ")";
}

}  // namespace

void Printer::sopp() {
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

std::string Printer::indexed_operands() const {
  if (in_.simm & ~15) return format("0x%x", unsigned(uint16_t(in_.simm)));
  std::string names;
  constexpr const char* kNames[] = {"SRC0", "SRC1", "SRC2", "DST"};
  for (int i = 0; i < 4; ++i)
    if (in_.simm >> i & 1) names += (names.empty() ? "" : ",") + std::string(kNames[i]);
  return "gpr_idx(" + names + ")";
}

void Printer::waitcnt(unsigned raw) {
  const unsigned vm = (raw & 15) | (raw >> 14 & 3) << 4, exp = raw >> 4 & 7, lgkm = raw >> 8 & 15;
  const bool all = vm == 63 && exp == 7 && lgkm == 15;  // then the assembler expects all three
  if (vm != 63 || all) add(format("vmcnt(%u)", vm));
  if (exp != 7 || all) add(format("expcnt(%u)", exp));
  if (lgkm != 15 || all) add(format("lgkmcnt(%u)", lgkm));
}

void Printer::sendmsg(unsigned raw) {
  const char* const name = find_name(kMessages, raw);
  operand(name ? format("sendmsg(%s)", name) : format("0x%x", raw));
}

void Printer::sopk() {
  const unsigned raw = uint16_t(in_.simm);
  const bool setreg = entry_.mnemonic.starts_with("s_setreg");
  if (setreg) operand(hwreg(raw));
  if (in_.num_dst)
    operand(operand_text(in_.dst[0], entry_.dst[0]));
  else if (in_.src[0].kind == Kind::constant)
    operand(inline_or_hex(uint32_t(in_.src[0].value)));
  else
    operand(operand_text(in_.src[0], entry_.src[0]));
  if (setreg) return;
  if (entry_.mnemonic.starts_with("s_getreg")) return operand(hwreg(raw));
  if (entry_.cls == Class::branch) return operand(format("%u", raw));
  operand(format("0x%x", raw));
}

void Printer::smem() {
  if (in_.num_dst) operand(operand_text(in_.dst[0], entry_.dst[0]));
  if (in_.num_src == 0) return;
  operand(operand_text(in_.src[0], {}));
  const bool imm = bit(17), soffset = in_.soffset.kind != Kind::none;
  if (soffset) operand(operand_text(in_.soffset, {}));
  const std::string offset =
      in_.offset < 0 ? format("-0x%x", -in_.offset) : format("0x%x", in_.offset);
  if (imm && soffset)
    add("offset:" + offset);
  else if (imm)
    operand(offset);
  flag(in_.glc, "glc");
}

}  // namespace hk::emulator
