// Fields of GFX9 machine words for both the decoder and the disassembler.
#pragma once

#include <cstdint>
#include <utility>

#include "isa/opcodes.hpp"

namespace hk::emulator {

// Source encodings (CDNA3 ISA, "Scalar Operands").
inline constexpr unsigned kVccEncoding = 106, kSharedBase = 235, kSharedLimit = 236,
                          kPrivateBase = 237, kPrivateLimit = 238, kSdwa = 249, kDpp = 250,
                          kLiteral = 255;
inline constexpr unsigned kScalePrefix = 0x2c;  // VOP3P: v_mfma_ld_scale_b32

// Addresses of LDS and scratch in this machine's generic (FLAT) memory.
inline constexpr uint64_t kSharedAperture = 0x0001'0000'0000'0000,
                          kPrivateAperture = 0x0002'0000'0000'0000;

constexpr unsigned bits_of(uint32_t word, int low, int width) {
  return word >> low & ((1u << width) - 1);
}

// The format and opcode number in an instruction's first word; matrix instructions count as VOP3P.
constexpr std::pair<Format, unsigned> encoding_of(uint32_t word) {
  if (word >> 31 == 0) {
    const unsigned op = bits_of(word, 25, 6);
    if (op == 0x3e) return {Format::vopc, bits_of(word, 17, 8)};
    if (op == 0x3f) return {Format::vop1, bits_of(word, 9, 8)};
    return {Format::vop2, op};
  }
  if (word >> 30 == 0b10) {
    const unsigned op = bits_of(word, 23, 7);
    if (op == 0x7d) return {Format::sop1, bits_of(word, 8, 8)};
    if (op == 0x7e) return {Format::sopc, bits_of(word, 16, 7)};
    if (op == 0x7f) return {Format::sopp, bits_of(word, 16, 7)};
    if (op >= 0x60) return {Format::sopk, op & 0x1f};
    return {Format::sop2, op};
  }
  switch (word >> 26) {
    case 0b110000: return {Format::smem, bits_of(word, 18, 8)};
    case 0b110100:
      if (bits_of(word, 23, 3) == 7) return {Format::vop3p, bits_of(word, 16, 7)};
      return {Format::vop3, bits_of(word, 16, 10)};
    case 0b110110: return {Format::ds, bits_of(word, 17, 8)};
    case 0b110111: {
      constexpr Format kSegments[] = {Format::flat, Format::scratch, Format::global, Format::count};
      return {kSegments[bits_of(word, 14, 2)], bits_of(word, 18, 7)};
    }
    case 0b111000: return {Format::mubuf, bits_of(word, 18, 7)};
    default: return {Format::count, 0};
  }
}

}  // namespace hk::emulator
