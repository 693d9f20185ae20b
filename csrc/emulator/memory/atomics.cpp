#include "memory/atomics.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

namespace hk::emulator {
namespace {

template <class Int, class Float>
uint64_t apply(Atomic op, uint64_t memory64, uint64_t data64, uint64_t data2) {
  using Signed = std::make_signed_t<Int>;
  const Int m = Int(memory64), d = Int(data64);
  const auto real = [](Int x) { return std::bit_cast<Float>(x); };
  const auto bits = [](Float x) { return uint64_t(std::bit_cast<Int>(x)); };
  switch (op) {
    case Atomic::add: return Int(m + d);
    case Atomic::sub: return Int(m - d);
    case Atomic::rsub: return Int(d - m);
    case Atomic::inc: return m >= d ? 0 : Int(m + 1);
    case Atomic::dec: return m == 0 || m > d ? d : Int(m - 1);
    case Atomic::smin: return Int(std::min(Signed(m), Signed(d)));
    case Atomic::smax: return Int(std::max(Signed(m), Signed(d)));
    case Atomic::umin: return std::min(m, d);
    case Atomic::umax: return std::max(m, d);
    case Atomic::bit_and: return m & d;
    case Atomic::bit_or: return m | d;
    case Atomic::bit_xor: return m ^ d;
    case Atomic::mskor: return Int((m & ~d) | Int(data2));
    case Atomic::swap: return d;
    case Atomic::cmpswap: return m == d ? Int(data2) : m;
    case Atomic::fcmpswap: return real(m) == real(d) ? Int(data2) : m;
    case Atomic::fadd: return bits(real(m) + real(d));
    case Atomic::fmin: return bits(std::fmin(real(m), real(d)));
    case Atomic::fmax: return bits(std::fmax(real(m), real(d)));
    default: throw std::logic_error("not an atomic operation of this width");
  }
}

// Widens f16 without _Float16. C++ has that only from GCC 12 on, and it needs symbols that older
// systems lack.
float widen_f16(uint16_t x) {
  const uint32_t sign = uint32_t(x >> 15) << 31, exponent = x >> 10 & 31, mantissa = x & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  return std::copysign(std::ldexp(float(mantissa), -24), std::bit_cast<float>(sign));
}

// Rounds to nearest even.
uint16_t narrow_f16(float x) {
  const uint32_t s = std::bit_cast<uint32_t>(x), sign = s >> 31 << 15;
  const float size = std::fabs(x);
  if (std::isnan(x)) return uint16_t(sign | 0x7e00 | (s >> 13 & 0x3ff));
  if (size >= 65520) return uint16_t(sign | 0x7c00);
  if (size < 0x1p-14f) return uint16_t(sign | uint32_t(std::nearbyint(size * 0x1p24f)));
  const uint32_t rounded = (s & 0x7fffffff) + 0xfff + (s >> 13 & 1);
  return uint16_t(sign | ((rounded >> 13) - (112 << 10)));
}

// Adds two f16 in f32. A float has more than twice their bits, so rounding its sum again is exact.
uint16_t add_f16(uint16_t a, uint16_t b) { return narrow_f16(widen_f16(a) + widen_f16(b)); }

// Adds two bfloat16. A float holds the sum closely enough to round it again to nearest even.
uint16_t add_bf16(uint16_t a, uint16_t b) {
  const auto widen = [](uint16_t x) { return std::bit_cast<float>(uint32_t(x) << 16); };
  const float sum = widen(a) + widen(b);
  const uint32_t s = std::bit_cast<uint32_t>(sum);
  if (std::isnan(sum)) return uint16_t(s >> 16 | 0x40);
  return uint16_t((s + 0x7fff + (s >> 16 & 1)) >> 16);
}

}  // namespace

uint64_t apply_atomic(Atomic op, unsigned bytes, uint64_t m, uint64_t d, uint64_t data2) {
  if (op == Atomic::pk_add_f16 || op == Atomic::pk_add_bf16) {
    const auto add = op == Atomic::pk_add_f16 ? add_f16 : add_bf16;
    const uint32_t low = add(uint16_t(m), uint16_t(d));
    const uint32_t high = add(uint16_t(m >> 16), uint16_t(d >> 16));
    return low | high << 16;
  }
  return bytes == 8 ? apply<uint64_t, double>(op, m, d, data2)
                    : apply<uint32_t, float>(op, m, d, data2);
}

}  // namespace hk::emulator
