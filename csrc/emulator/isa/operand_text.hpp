// Operands as the assembler writes them.
#pragma once

#include <cstdio>
#include <string>

#include "isa/instruction.hpp"
#include "isa/opcodes.hpp"

namespace hk::emulator {

std::string format(const char* pattern, auto... values) {
  char text[96];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

std::string operand_text(const Operand& operand, const OperandType& type);

// A number as the assembler may have it inline, else in hexadecimal.
std::string inline_or_hex(uint32_t value);

}  // namespace hk::emulator
