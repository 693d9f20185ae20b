// AMX-TILE, AMX-BF16 and AMX-INT8 with palette 1. Source: Intel SDM volume 1, chapter 18 and volume
// 2, the pages of LDTILECFG to TDPBUUD. A restart row other than 0 is refused: only an operating
// system writes one.
#include <immintrin.h>

#include <cstring>

#include "elements.hpp"
#include "instruction.hpp"
#include "machine.hpp"

namespace hk::test {
namespace {

using enum Operation;

// The 64 bytes that ldtilecfg reads and sttilecfg writes.
struct Configuration {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[TILES];
  uint8_t reserved_row_bytes[16];
  uint8_t rows[TILES];
  uint8_t reserved_rows[8];
};
static_assert(sizeof(Configuration) == 64);

bool zero(const uint8_t* bytes, int count) {
  for (int i = 0; i < count; ++i) {
    if (bytes[i]) return false;
  }
  return true;
}

bool configure(const Configuration& wanted, TileState& tiles) {
  if (wanted.palette > 1) return false;
  TileState fresh = {};
  if (wanted.palette == 1) {
    if (wanted.start_row || !zero(wanted.reserved, 14) || !zero(wanted.reserved_row_bytes, 16) ||
        !zero(wanted.reserved_rows, 8)) {
      return false;
    }
    fresh.configured = true;
    for (int t = 0; t < TILES; ++t) {
      fresh.rows[t] = wanted.rows[t];
      fresh.row_bytes[t] = wanted.row_bytes[t];
      if (wanted.rows[t] > MOST_ROWS || wanted.row_bytes[t] > MOST_BYTES) return false;
      if ((wanted.rows[t] == 0) != (wanted.row_bytes[t] == 0)) return false;
    }
  }
  tiles = fresh;
  return true;
}

void store_configuration(const TileState& tiles, void* memory) {
  Configuration now = {};
  now.palette = tiles.configured;
  std::memcpy(now.rows, tiles.rows, sizeof now.rows);
  std::memcpy(now.row_bytes, tiles.row_bytes, sizeof now.row_bytes);
  std::memcpy(memory, &now, sizeof now);
}

bool usable(const TileState& tiles, int tile) { return tiles.configured && tiles.rows[tile] > 0; }

bool in_dwords(const TileState& tiles, int tile) {
  return usable(tiles, tile) && tiles.row_bytes[tile] % 4 == 0;
}

// M x K of `second` times K x N of `first`, in groups of four bytes along K.
bool shapes_agree(const Instruction& i, const TileState& t) {
  const int sum = i.destination, left = i.second, right = i.first;
  return in_dwords(t, sum) && in_dwords(t, left) && in_dwords(t, right) &&
         t.row_bytes[sum] == t.row_bytes[right] && t.rows[sum] == t.rows[left] &&
         t.row_bytes[left] == 4 * t.rows[right];
}

// One row of the product: the even and the odd products are summed apart, then added.
__m512 bfloat16_row(const Vector& left, const Vector* right, int groups, __m512 sum) {
  __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
  for (int k = 0; k < groups; ++k) {
    const __m512i a = _mm512_set1_epi32(static_cast<int>(left.dwords[k]));
    const __m512i b = _mm512_load_si512(&right[k]);
    even = _mm512_fmadd_ps(even_elements(a), even_elements(b), even);
    odd = _mm512_fmadd_ps(odd_elements(a), odd_elements(b), odd);
  }
  return _mm512_add_ps(sum, _mm512_add_ps(even, odd));
}

__m512i integer_row(const Vector& left, bool left_sign, const Vector* right, bool right_sign,
                    int groups, __m512i sum) {
  for (int k = 0; k < groups; ++k) {
    const __m512i a = _mm512_set1_epi32(static_cast<int>(left.dwords[k]));
    sum = integer_dot(sum, 8, a, left_sign, _mm512_load_si512(&right[k]), right_sign);
  }
  return sum;
}

bool multiply(const Instruction& i, TileState& t) {
  if (!shapes_agree(i, t)) return false;
  const int sum = i.destination, rows = t.rows[sum], groups = t.rows[i.first];
  const auto columns = static_cast<__mmask16>((1u << t.row_bytes[sum] / 4) - 1);
  const Vector* right = t.tile[i.first];
  const bool left_sign = i.operation == tdpbssd || i.operation == tdpbsud;
  const bool right_sign = i.operation == tdpbssd || i.operation == tdpbusd;
  for (int m = 0; m < MOST_ROWS; ++m) {
    Vector& row = t.tile[sum][m];
    const Vector& left = t.tile[i.second][m];
    __m512i result = _mm512_setzero_si512();
    if (m < rows && i.operation == tdpbf16ps) {
      result = _mm512_castps_si512(bfloat16_row(left, right, groups, _mm512_load_ps(&row)));
    } else if (m < rows) {
      const __m512i old = _mm512_load_si512(&row);
      result = integer_row(left, left_sign, right, right_sign, groups, old);
    }
    _mm512_store_si512(&row, _mm512_maskz_mov_epi32(columns, result));
  }
  return true;
}

bool move_rows(const Instruction& i, const Frame& f, TileState& t) {
  const int tile = i.destination;
  if (!in_dwords(t, tile)) return false;
  const auto columns = static_cast<__mmask16>((1u << t.row_bytes[tile] / 4) - 1);
  const uint64_t start = address_of(i, f), stride = f.general[i.index] << i.shift;
  for (int m = 0; m < MOST_ROWS; ++m) {
    Vector& row = t.tile[tile][m];
    auto* memory = reinterpret_cast<void*>(start + m * stride);
    const __mmask16 wanted = m < t.rows[tile] ? columns : 0;
    if (i.operation == tilestored) {
      if (wanted) _mm512_mask_storeu_epi32(memory, wanted, _mm512_load_si512(&row));
    } else {
      _mm512_store_si512(
          &row, wanted ? _mm512_maskz_loadu_epi32(wanted, memory) : _mm512_setzero_si512());
    }
  }
  return true;
}

}  // namespace

bool execute_tile(const Instruction& i, const Frame& f, TileState& t) {
  switch (i.operation) {
    case ldtilecfg: {
      Configuration wanted;
      std::memcpy(&wanted, reinterpret_cast<const void*>(address_of(i, f)), sizeof wanted);
      return configure(wanted, t);
    }
    case sttilecfg: store_configuration(t, reinterpret_cast<void*>(address_of(i, f))); return true;
    case tilerelease: t = {}; return true;
    case tilezero:
      if (!usable(t, i.destination)) return false;
      std::memset(t.tile[i.destination], 0, sizeof t.tile[i.destination]);
      return true;
    case tileloadd:
    case tileloaddt1:
    case tilestored: return move_rows(i, f, t);
    default: return multiply(i, t);
  }
}

}  // namespace hk::test
