#include "isa/operand_text.hpp"

#include "isa/encoding.hpp"

namespace hk::emulator {
namespace {

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

}  // namespace

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

std::string operand_text(const Operand& operand, const OperandType& type) {
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

}  // namespace hk::emulator
