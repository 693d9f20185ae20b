// SMFMAC: D += A B on 64 lanes, where two of every four neighbours along the depth of A are there,
// and an index says which (4:2 sparsity).
//
// Layouts are those of the CDNA3 and CDNA4 ISA guides, "Sparse Matrices":
//   A: packed, [M][K / 2]: element j of lane l is row l % M, place p = j + E * (l / M), where each
//      lane holds E elements. Its depth is 4 * (p / 2) + its index.
//   Index: 2 bits for each element that the lane has of A, in their order. A register has room for
//      4, 2 or 1 such sets, of which ABID chooses one. With CBSZ it is the first.
//   B: runs of 16 bytes: element j of lane l is column l % M, and the runs of all lane groups come
//      before a lane's second run. D: as that of a dense instruction.
// Probes on a gfx950 and AMD's simulator pair elements of A and B like this, too.
//
// Assumptions: the sum is in the order of k, one fused multiply-add for each element of A, as in
// semantics_matrix.cpp. What A leaves out multiplies nothing, be it NaN. Indices that do not ascend
// within a pair, which the guides forbid, are taken as they are.
#include "semantics/matrix_types.hpp"

namespace hk::emulator::HK_ISA {
namespace {

// M x M results of K products each, half of which are there.
template <int kM, int kK>
struct SparseShape {
  static constexpr int M = kM, K = kK, packed = K / 2, groups = 64 / M;
  static constexpr int registers = M * M / 64;                            // of D
  static constexpr int of_a = packed / groups, of_b = K / groups;         // elements of a lane
  static constexpr int sets = 32 / (2 * of_a), set_bits = 2 * of_a % 32;  // of an index register
};

// Reads packed A as [row][place], and the depth of each of these.
template <class T, class S>
void read_sparse(Wave& w, const Instruction& in, typename T::Value* out, int* depths) {
  const auto* rows = reinterpret_cast<const LaneRow*>(register_row(w, in.src[0]));
  const uint32_t* const indices = register_row(w, in.src[2]);
  const int set = in.cbsz & 3 ? 0 : in.abid % S::sets;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t index = indices[lane] >> (set * S::set_bits);
    for (int j = 0; j < S::of_a; ++j) {
      const int place = lane / S::M * S::of_a + j, at = lane % S::M * S::packed + place;
      out[at] = T::decode(rows[j / T::parts][lane], j % T::parts);
      depths[at] = place / 2 * 4 + int(index >> (2 * j) & 3);
    }
  }
}

// Reads B as [k][column].
template <class T, class S>
void read_runs(Wave& w, const Instruction& in, typename T::Value* out) {
  constexpr int kRun = 4 * T::parts;
  const auto* rows = reinterpret_cast<const LaneRow*>(register_row(w, in.src[1]));
  for (int j = 0; j < S::of_b; ++j)
    for (int lane = 0; lane < kLanes; ++lane) {
      const int k = (j / kRun * S::groups + lane / S::M) * kRun + j % kRun;
      out[k * S::M + lane % S::M] = T::decode(rows[j / T::parts][lane], j % T::parts);
    }
}

template <class TA, class TB, class S>
void smfmac(Wave& w, const Instruction& in) {
  using Value = typename TA::Value;
  using Vector = typename VectorOf<Value>::type;
  Value a[S::M * S::packed];
  int depths[S::M * S::packed];
  alignas(64) Value b[S::K * S::M];
  read_sparse<TA, S>(w, in, a, depths);
  read_runs<TB, S>(w, in, b);
  auto* const d = reinterpret_cast<LaneRow*>(register_row(w, in.dst[0]));
  for (int row = 0; row < S::M; ++row) {
    const int r = row / (4 * S::groups) * 4 + row % 4, group = row / 4 % S::groups;
    auto* const sums = reinterpret_cast<Vector*>(d[r] + group * S::M);
    for (int v = 0; v < S::M / 8; ++v) {
      Vector sum = sums[v];
      for (int at = row * S::packed; at < (row + 1) * S::packed; ++at)
        sum = multiply_add(a[at] - Vector{},
                           *reinterpret_cast<const Vector*>(b + depths[at] * S::M + 8 * v), sum);
      sums[v] = settled(sum);
    }
  }
}

// Two shapes of each type: D is 16 x 16, or 32 x 32 of half the depth.
template <class A, class B, int kDepth>
void add_sparse_shapes(Semantics& all, const std::string& result, const std::string& types) {
  all["v_smfmac_" + result + "_16x16x" + std::to_string(kDepth) + types] =
      smfmac<A, B, SparseShape<16, kDepth>>;
  all["v_smfmac_" + result + "_32x32x" + std::to_string(kDepth / 2) + types] =
      smfmac<A, B, SparseShape<32, kDepth / 2>>;
}

template <class A, class B>
void add_sparse_types(Semantics& all, const std::string& result, const std::string& types,
                      Arch arch) {
  constexpr int kDepth = 16 * A::parts;
  add_sparse_shapes<A, B, kDepth>(all, result, types);
  if (arch == Arch::gfx950) add_sparse_shapes<A, B, 2 * kDepth>(all, result, types);
}

template <class Fp8, class Bf8>
void add_sparse_8bit(Semantics& all, Arch arch) {
  add_sparse_types<Fp8, Fp8>(all, "f32", "_fp8_fp8", arch);
  add_sparse_types<Fp8, Bf8>(all, "f32", "_fp8_bf8", arch);
  add_sparse_types<Bf8, Fp8>(all, "f32", "_bf8_fp8", arch);
  add_sparse_types<Bf8, Bf8>(all, "f32", "_bf8_bf8", arch);
}

}  // namespace

void add_sparse_matrix(Semantics& all, Arch arch) {
  add_sparse_types<F16, F16>(all, "f32", "_f16", arch);
  add_sparse_types<Bf16, Bf16>(all, "f32", "_bf16", arch);
  add_sparse_types<I8, I8>(all, "i32", "_i8", arch);
  if (arch == Arch::gfx942)
    add_sparse_8bit<Narrow<kFp8Fnuz>, Narrow<kBf8Fnuz>>(all, arch);
  else
    add_sparse_8bit<Narrow<kFp8>, Narrow<kBf8>>(all, arch);
}

}  // namespace hk::emulator::HK_ISA
