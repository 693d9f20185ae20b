// Constants that an operand's encoding stands for.
#pragma once

#include <cstdint>

#include "isa/encoding.hpp"
#include "isa/opcodes.hpp"

namespace hk::emulator {

constexpr bool is_constant(unsigned encoding) {
  return (encoding >= 128 && encoding <= 208) || (encoding >= 235 && encoding <= 248) ||
         encoding == kLiteral;
}

// The value of a constant's `encoding` as an operand of `type`; `literal`: the word behind the
// instruction.
uint64_t constant_value(unsigned encoding, const OperandType& type, uint32_t literal);

}  // namespace hk::emulator
