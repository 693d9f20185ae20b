// Prints an instruction in the format of llvm-objdump.
#include "isa/decode.hpp"
#include "isa/encoding.hpp"
#include "isa/operand_text.hpp"
#include "isa/printer.hpp"

namespace hk::emulator {

Printer::Printer(const Instruction& instruction)
    : in_(instruction), entry_(entry_of(instruction)),
      encoding_(encoding_of(instruction.words[0]).first) {}

std::string Printer::print() {
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

std::string Printer::suffix() const {
  const Format base = entry_.format;
  if (base != Format::vop1 && base != Format::vop2 && base != Format::vopc) return "";
  if (in_.sdwa) return "_sdwa";
  if (in_.dpp) return "_dpp";
  if (entry_.flags & kNoVop3 || entry_.num_dst == 0) return "";
  return encoding_ == Format::vop3 ? "_e64" : "_e32";
}

void Printer::operand(const std::string& text) {
  text_ += first_ ? " " : ", ";
  text_ += text;
  first_ = false;
}

void Printer::list(const char* name, unsigned bits, int n) {
  text_ += std::string(" ") + name + ":[";
  for (int i = 0; i < n; ++i) text_ += (i ? "," : "") + std::string(bits >> i & 1 ? "1" : "0");
  text_ += "]";
}

int Printer::explicit_sources() const {
  int n = in_.num_src;
  while (n && entry_.src[n - 1].role == Role::tied) --n;
  return entry_.flags & kSwaps ? 0 : n;
}

std::string to_string(const Instruction& instruction) {
  if (is_unknown(instruction)) {  // its length is unknown, too: two words, if there are
    if (instruction.words[1] == 0) return format("unknown 0x%08x", instruction.words[0]);
    return format("unknown 0x%08x 0x%08x", instruction.words[0], instruction.words[1]);
  }
  return Printer(instruction).print();
}

}  // namespace hk::emulator
