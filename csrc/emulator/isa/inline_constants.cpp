#include "isa/inline_constants.hpp"

namespace hk::emulator {
namespace {

// Inline constants 240 to 248: 0.5 -0.5 1 -1 2 -2 4 -4 1/(2 pi).
constexpr uint16_t kHalf[] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000,
                              0xc000, 0x4400, 0xc400, 0x3118};
constexpr uint32_t kSingle[] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000,
                                0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};
constexpr uint64_t kDouble[] = {0x3fe0000000000000, 0xbfe0000000000000, 0x3ff0000000000000,
                                0xbff0000000000000, 0x4000000000000000, 0xc000000000000000,
                                0x4010000000000000, 0xc010000000000000, 0x3fc45f306dc9c882};

}  // namespace

// The value of a constant. Integers are sign-extended to the operand's width, at least 32 bits.
// Floats take the operand's type, in the low half of packed ones; a 16-bit integer operand sees the
// f32 pattern (LLVM, AMDGPUBaseInfo, getInlineEncodingV216).
uint64_t constant_value(unsigned encoding, const OperandType& type, uint32_t literal) {
  const bool wide = type.bits == 64;
  if (encoding == kLiteral) {
    if (type.base == 'f' && wide) return uint64_t(literal) << 32;
    if (type.base == 'i' && wide) return uint64_t(int64_t(int32_t(literal)));
    return literal;
  }
  if (encoding <= 208) {
    const int64_t value = encoding <= 192 ? int64_t(encoding) - 128 : 192 - int64_t(encoding);
    return wide ? uint64_t(value) : uint32_t(value);
  }
  if (encoding < 240) {  // apertures: high halves of LDS's and scratch's generic addresses
    switch (encoding) {
      case kSharedBase: return kSharedAperture;
      case kSharedLimit: return kSharedAperture + 0xffffffff;
      case kPrivateBase: return kPrivateAperture;
      case kPrivateLimit: return kPrivateAperture + 0xffffffff;
      default: return 0;
    }
  }
  const unsigned i = encoding - 240;
  if (wide) return kDouble[i];
  if (type.base == 'f' && type.bits == 16) return kHalf[i];
  if (type.base == 'B') return kSingle[i] >> 16;
  return kSingle[i];
}

}  // namespace hk::emulator
