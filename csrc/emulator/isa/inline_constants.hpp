// Constants that operands' encodings represent.
#pragma once

#include <cstdint>

#include "isa/encoding.hpp"
#include "isa/opcodes.hpp"

namespace hk::emulator {

constexpr bool is_constant(unsigned encoding) {
  return (encoding >= 128 && encoding <= 208) || (encoding >= 235 && encoding <= 248) ||
         encoding == kLiteral;
}

// Returns the value of a constant's `encoding` for an operand of `type`. `literal`: the word behind
// the instruction.
uint64_t constant_value(unsigned encoding, const OperandType& type, uint32_t literal);

}  // namespace hk::emulator
