// AVX512-BF16 and VNNI, written with AVX-512F alone. Source: Intel SDM volume 2, the pages of
// VDPBF16PS, VCVTNEPS2BF16, VCVTNE2PS2BF16, VPDPBUSD(S) and VPDPWSSD(S).
#include <immintrin.h>

#include "elements.hpp"
#include "instruction.hpp"
#include "machine.hpp"

namespace hk::test {
namespace {

using enum Operation;

__m512i second_operand(const Instruction& i, const Frame& f, __mmask16 wanted) {
  if (!i.memory) return _mm512_load_si512(&f.zmm[i.second]);
  const auto* memory = reinterpret_cast<const uint32_t*>(address_of(i, f));
  if (!i.broadcast) return _mm512_maskz_loadu_epi32(wanted, memory);
  return _mm512_set1_epi32(wanted ? *memory : 0);
}

Vector dot_bfloat16(const Vector& sum, const Vector& first, __m512i second) {
  const __m512i a = _mm512_load_si512(&first);
  __m512 result = _mm512_load_ps(&sum);
  result = _mm512_fmadd_ps(odd_elements(a), odd_elements(second), result);
  result = _mm512_fmadd_ps(even_elements(a), even_elements(second), result);
  Vector out;
  _mm512_store_ps(&out, result);
  return out;
}

int64_t integer(uint32_t dword, int bits, int index, bool sign) {
  const uint32_t top = dword << (32 - bits * (index + 1));
  return sign ? static_cast<int32_t>(top) >> (32 - bits) : int64_t{top >> (32 - bits)};
}

// vpdpbusds (8 bits) and vpdpwssds (16 bits): the exact sum, limited to 32 bits once.
Vector saturated_dot(const Vector& sum, const Vector& first, const Vector& second, int bits) {
  Vector out;
  for (int lane = 0; lane < 16; ++lane) {
    int64_t total = static_cast<int32_t>(sum.dwords[lane]);
    for (int index = 0; index < 32 / bits; ++index) {
      total += integer(first.dwords[lane], bits, index, bits == 16) *
               integer(second.dwords[lane], bits, index, true);
    }
    const int64_t least = INT32_MIN, most = INT32_MAX;
    out.dwords[lane] = static_cast<uint32_t>(total < least ? least : total > most ? most : total);
  }
  return out;
}

// vpdpbusd (8 bits) and vpdpwssd (16 bits).
Vector dot(const Vector& sum, const Vector& first, __m512i second, int bits) {
  const __m512i a = _mm512_load_si512(&first), old = _mm512_load_si512(&sum);
  Vector out;
  _mm512_store_si512(&out, integer_dot(old, bits, a, bits == 16, second, true));
  return out;
}

uint16_t to_bfloat16(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude < 0x00800000) return bits >> 16 & 0x8000;
  if (magnitude > 0x7F800000) return bits >> 16 | 0x40;
  if (magnitude == 0x7F800000) return bits >> 16;
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

// Results of elements that the mask leaves out are zero or the old ones; beyond the vector, zero.
template <class Element>
void write(const Instruction& i, Element* destination, const Element* result, int elements,
           uint64_t wanted) {
  for (int e = 0; e < MOST_BYTES / static_cast<int>(sizeof(Element)); ++e) {
    if (e >= elements) {
      destination[e] = 0;
    } else if (wanted >> e & 1) {
      destination[e] = result[e];
    } else if (i.zeroing) {
      destination[e] = 0;
    }
  }
}

}  // namespace

bool execute_vector(const Instruction& i, Frame& f) {
  const int lanes = i.vector_bytes / 4;
  const uint64_t mask = i.mask ? f.k[i.mask] : ~uint64_t{0};
  const auto every = static_cast<__mmask16>((1 << lanes) - 1);
  const auto wanted = static_cast<__mmask16>(mask & every);
  Vector& destination = f.zmm[i.destination];
  const Vector& first = f.zmm[i.first];
  const __m512i second = second_operand(i, f, i.operation == vcvtne2ps2bf16 ? every : wanted);
  Vector source, result;
  _mm512_store_si512(&source, second);
  switch (i.operation) {
    case vdpbf16ps: result = dot_bfloat16(destination, first, second); break;
    case vpdpbusd: result = dot(destination, first, second, 8); break;
    case vpdpwssd: result = dot(destination, first, second, 16); break;
    case vpdpbusds: result = saturated_dot(destination, first, source, 8); break;
    case vpdpwssds: result = saturated_dot(destination, first, source, 16); break;
    case vcvtneps2bf16:
      for (int e = 0; e < lanes; ++e) result.words[e] = to_bfloat16(source.dwords[e]);
      write(i, destination.words, result.words, lanes, wanted);
      return true;
    case vcvtne2ps2bf16:
      for (int e = 0; e < lanes; ++e) {
        result.words[e] = to_bfloat16(source.dwords[e]);
        result.words[lanes + e] = to_bfloat16(first.dwords[e]);
      }
      write(i, destination.words, result.words, 2 * lanes, mask);
      return true;
    default: return false;
  }
  write(i, destination.dwords, result.dwords, lanes, wanted);
  return true;
}

}  // namespace hk::test
