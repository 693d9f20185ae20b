// Parts that matrix instructions of every type share: the layout of their operands, and one block
// of D = A B + C in vectors of 8.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "semantics/lanes.hpp"
#ifdef __FMA__
#include <immintrin.h>
#endif

namespace hk::emulator::HK_ISA {

using LaneRow = uint32_t[kLanes];  // the lanes of one register

// M x M results, K products each, in kBlocks independent blocks.
//   A: element j of lane l is row l % M, k = j + E * (l / M / kBlocks), block l / M % kBlocks,
//      where each lane holds E = K * M * kBlocks / 64 elements. B is the same with columns.
//   D: for M = 32 and 16, register r of block b at b * M * M / 64 + r: lane l has column l % M and
//      row 256 / M * (r / 4) + 4 * (l / M) + r % 4. For M = 4: row r, column l % 4, block l / 4.
template <int kM, int kK, int kNumBlocks = 1>
struct Shape {
  static constexpr int M = kM, K = kK, blocks = kNumBlocks;
  static constexpr int elements = K * M * blocks / 64;       // elements per lane of A and of B
  static constexpr int groups = 64 / M;                      // groups of lanes
  static constexpr int registers = M * M * blocks / 64;      // registers of C and D
  static constexpr int per_block = M == 4 ? 4 : M * M / 64;  // registers per block
  static_assert(blocks == 1 || blocks == groups);
};

// Loads C's registers, or its constant into all of them.
template <class Value>
void load_c(Wave& w, const Operand& c, int registers, Value (*out)[kLanes]) {
  if (c.kind == Kind::vgpr || c.kind == Kind::agpr) {
    std::memcpy(out, register_row(w, c), size_t(registers) * sizeof(Row));
    return;
  }
  if (c.kind != Kind::constant) throw Unsupported("a matrix instruction with C in SGPRs");
  for (int r = 0; r < registers; ++r)
    for (int lane = 0; lane < kLanes; ++lane)
      out[r][lane] = std::bit_cast<Value>(uint32_t(c.value));
}

// Copies C to the registers of D, where blocks of 32 x 32 and 16 x 16 are then computed.
inline LaneRow* copy_c(Wave& w, const Instruction& in, int registers) {
  const Operand& c = in.src[2];
  auto* const d = reinterpret_cast<LaneRow*>(register_row(w, in.dst[0]));
  if (c.kind == Kind::constant) {
    std::fill_n(d[0], registers * kLanes, uint32_t(c.value));
  } else if (c.kind == Kind::vgpr || c.kind == Kind::agpr) {
    const uint32_t* const rows = register_row(w, c);
    if (rows != d[0]) std::memmove(d, rows, size_t(registers) * sizeof(Row));
  } else {
    throw Unsupported("a matrix instruction with C in SGPRs");
  }
  return d;
}

// ---- vectors of 8 ----

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(8 * sizeof(T)), may_alias));
};
using Floats = VectorOf<float>::type;
using Ints = VectorOf<int32_t>::type;
using Words = VectorOf<uint32_t>::type;

inline Floats multiply_add(Floats a, Floats b, Floats c) {
#ifdef __FMA__
  return Floats(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
#else
  for (int i = 0; i < 8; ++i) c[i] = std::fma(a[i], b[i], c[i]);
  return c;
#endif
}
inline Ints multiply_add(Ints a, Ints b, Ints c) {
  typedef uint32_t U __attribute__((vector_size(32)));
  return Ints(U(a) * U(b) + U(c));
}
inline Floats settled(Floats v) {
  const Ints nan = v != v;
  return Floats((Ints(v) & ~nan) | (nan & 0x7fc00000));
}
inline Ints settled(Ints v) { return v; }

// Multiplies one block of 32 x 32 or 16 x 16. The 64 lanes of a register are 8 vectors, M / 8 per
// row.
template <class Value, class S, class Rows>
void multiply(const Value* a, const Value* b, Rows* d) {
  using Vector = typename VectorOf<Value>::type;
  constexpr int kPerRow = S::M / 8;
  for (int r = 0; r < S::per_block; ++r) {
    auto* const lanes = reinterpret_cast<Vector*>(d[r]);
    Vector sum[8];
    for (int v = 0; v < 8; ++v) sum[v] = lanes[v];
    for (int k = 0; k < S::K; ++k) {
      const auto* const columns = reinterpret_cast<const Vector*>(b + k * S::M);
      for (int g = 0; g < S::groups; ++g) {
        const Value value = a[k * S::M + 4 * S::groups * (r / 4) + 4 * g + r % 4];
        const Vector row = value - Vector{};  // splat
        for (int v = 0; v < kPerRow; ++v)
          sum[g * kPerRow + v] = multiply_add(row, columns[v], sum[g * kPerRow + v]);
      }
    }
    for (int v = 0; v < 8; ++v) lanes[v] = settled(sum[v]);
  }
}

void add_f8f6f4(Semantics& all);

}  // namespace hk::emulator::HK_ISA
