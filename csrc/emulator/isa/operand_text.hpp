// Prints operands in the assembler's syntax.
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

// Text of a number: its name if it is an inline constant, else hexadecimal.
std::string inline_or_hex(uint32_t value);

}  // namespace hk::emulator
