// MFMA: D = A B + C on 64 lanes, regardless of EXEC. Layouts are those of AMD's matrix instruction
// calculator, with one formula per operand (see Shape).
//
// No public document states the arithmetic bit by bit. Assumptions:
//   f32 results: one fused multiply-add per k, in the order of k, starting from C, each rounded to
//     nearest even; denormals are kept and MODE is not looked at (CDNA3 ISA guide, "Matrix
//     Arithmetic"); every NaN result is 0x7fc00000. Hardware sums several products before it
//     rounds: results agree within the error of f32 accumulation, not bit by bit.
//   f8f6f4: one such chain per 32 k from 0, times the two scales, added to C in double and rounded.
//   i32 results: modulo 2^32. f64: as f32, in f64.
#include "semantics/matrix_types.hpp"

namespace hk::emulator::HK_ISA {
namespace {

// Unpacks to [block][k][M], which for either value of `blocks` is [lane group][element][M].
template <class T, class S>
void unpack(const LaneRow* rows, typename T::Value* out) {
  constexpr bool kVectors = S::M % 8 == 0 && requires { T::decode(Words{}, 0); };
  for (int j = 0; j < S::elements; ++j)
    for (int g = 0; g < S::groups; ++g) {
      const uint32_t* const from = rows[j / T::parts] + g * S::M;
      typename T::Value* const to = out + (g * S::elements + j) * S::M;
      if constexpr (kVectors) {
        for (int m = 0; m < S::M; m += 8)
          *reinterpret_cast<Floats*>(to + m) =
              T::decode(*reinterpret_cast<const Words*>(from + m), j % T::parts);
      } else {
        for (int m = 0; m < S::M; ++m) to[m] = T::decode(from[m], j % T::parts);
      }
    }
}

// Lane whose B a lane takes, by BLGP (the calculator's table).
int b_lane(int lane, int blgp) {
  switch (blgp) {
    case 1: return lane % 32;
    case 2: return lane % 32 + 32;
    case 3: return (lane + 16) % 64;
    case 4:
    case 5:
    case 6:
    case 7: return lane % 16 + 16 * (blgp - 4);
  }
  return lane;
}

template <int kRegisters>
const LaneRow* b_rows(Wave& w, const Instruction& in, LaneRow* scratch) {
  const auto* rows = reinterpret_cast<const LaneRow*>(register_row(w, in.src[1]));
  if (!in.blgp) return rows;
  for (int r = 0; r < kRegisters; ++r)
    for (int lane = 0; lane < kLanes; ++lane) scratch[r][lane] = rows[r][b_lane(lane, in.blgp)];
  return scratch;
}

// Multiplies one block of 4 x 4, in 4 lanes of 4 registers, with the columns in the lower half of a
// vector.
template <class Value, class S>
void multiply_small(const Value* a, const Value* b, Value (*d)[kLanes], int lane) {
  using Vector = typename VectorOf<Value>::type;
  for (int r = 0; r < 4; ++r) {
    Vector sum{};
    for (int c = 0; c < 4; ++c) sum[c] = d[r][lane + c];
    for (int k = 0; k < S::K; ++k) {
      Vector columns{};
      for (int c = 0; c < 4; ++c) columns[c] = b[k * 4 + c];
      sum = multiply_add(a[k * 4 + r] - Vector{}, columns, sum);
    }
    sum = settled(sum);
    for (int c = 0; c < 4; ++c) d[r][lane + c] = sum[c];
  }
}

template <class TA, class TB, class S>
void mfma(Wave& w, const Instruction& in) {
  using Value = typename TA::Value;
  constexpr int kSize = S::M * S::K;
  alignas(64) Value a[kSize * S::blocks], b[kSize * S::blocks];
  alignas(64) LaneRow permuted[S::elements / TB::parts];
  unpack<TA, S>(reinterpret_cast<const LaneRow*>(register_row(w, in.src[0])), a);
  unpack<TB, S>(b_rows<S::elements / TB::parts>(w, in, permuted), b);
  // A block of 4 x 4 is computed beside the registers, with scalars.
  alignas(64) Value small[S::M == 4 ? S::registers : 1][kLanes];
  LaneRow* d = nullptr;
  if constexpr (S::M == 4)
    load_c<Value>(w, in.src[2], S::registers, small);
  else
    d = copy_c(w, in, S::registers);
  for (int block = 0; block < S::blocks; ++block) {
    // CBSZ: 2^cbsz consecutive blocks share the A of the ABID-th of them
    const int from = (block >> in.cbsz << in.cbsz) + (in.cbsz ? in.abid : 0);
    const Value* const rows = a + kSize * (from % S::blocks);
    if constexpr (S::M == 4)
      multiply_small<Value, S>(rows, b + kSize * block, small, 4 * block);
    else
      multiply<Value, S>(rows, b + kSize * block, d + S::per_block * block);
  }
  if constexpr (S::M == 4) std::memcpy(register_row(w, in.dst[0]), small, sizeof small);
}

// ---- f64: blgp negates A, B, C; one element per lane ----

template <int M, int kBlocks>
void mfma_f64(Wave& w, const Instruction& in) {
  const auto read = [&](int n, int pair, int lane) {
    const Operand& o = in.src[n];
    uint64_t bits = o.value;
    if (o.kind != Kind::constant) {
      const uint64_t low = register_row(w, o, 2 * pair)[lane];
      const uint64_t high = register_row(w, o, 2 * pair + 1)[lane];
      bits = low | high << 32;
    }
    return std::bit_cast<double>(bits ^ uint64_t(in.blgp >> n & 1) << 63);
  };
  constexpr int kStride = M * kBlocks;  // lanes of one k, and of one row of D
  constexpr int kPairs = M * M * kBlocks / 64, kRowsPerPair = M / kPairs;
  Row d[2 * kPairs];
  for (int block = 0; block < kBlocks; ++block)
    for (int i = 0; i < M; ++i)
      for (int j = 0; j < M; ++j) {
        const int pair = i / kRowsPerPair, lane = block * M + i % kRowsPerPair * kStride + j;
        double sum = read(2, pair, lane);
        for (int k = 0; k < 4; ++k)
          sum = std::fma(read(0, 0, block * M + k * kStride + i),
                         read(1, 0, block * M + k * kStride + j), sum);
        store_lane(d + 2 * pair, lane, sum == sum ? sum : std::nan(""));
      }
  std::memcpy(register_row(w, in.dst[0]), d, sizeof d);
}

// ---- names ----

template <class T>
void add_16bit(Semantics& all, const std::string& type, Arch arch) {
  const std::string f32 = "v_mfma_f32_";
  all[f32 + "32x32x4_2b" + type] = mfma<T, T, Shape<32, 4, 2>>;
  all[f32 + "16x16x4_4b" + type] = mfma<T, T, Shape<16, 4, 4>>;
  all[f32 + "4x4x4_16b" + type] = mfma<T, T, Shape<4, 4, 16>>;
  all[f32 + "32x32x8" + type] = mfma<T, T, Shape<32, 8>>;
  all[f32 + "16x16x16" + type] = mfma<T, T, Shape<16, 16>>;
  if (arch != Arch::gfx950) return;
  all[f32 + "16x16x32" + type] = mfma<T, T, Shape<16, 32>>;
  all[f32 + "32x32x16" + type] = mfma<T, T, Shape<32, 16>>;
}

template <class Fp8, class Bf8>
void add_8bit(Semantics& all) {
  const auto add = [&]<class A, class B>(const std::string& types, A, B) {
    all["v_mfma_f32_16x16x32" + types] = mfma<A, B, Shape<16, 32>>;
    all["v_mfma_f32_32x32x16" + types] = mfma<A, B, Shape<32, 16>>;
  };
  add("_fp8_fp8", Fp8{}, Fp8{});
  add("_fp8_bf8", Fp8{}, Bf8{});
  add("_bf8_fp8", Bf8{}, Fp8{});
  add("_bf8_bf8", Bf8{}, Bf8{});
}

}  // namespace

void add_matrix(Semantics& all, Arch arch) {
  all["v_mfma_f32_32x32x1_2b_f32"] = mfma<F32, F32, Shape<32, 1, 2>>;
  all["v_mfma_f32_16x16x1_4b_f32"] = mfma<F32, F32, Shape<16, 1, 4>>;
  all["v_mfma_f32_4x4x1_16b_f32"] = mfma<F32, F32, Shape<4, 1, 16>>;
  all["v_mfma_f32_32x32x2_f32"] = mfma<F32, F32, Shape<32, 2>>;
  all["v_mfma_f32_16x16x4_f32"] = mfma<F32, F32, Shape<16, 4>>;
  add_16bit<F16>(all, "_f16", arch);
  add_16bit<Bf16>(all, "_bf16", arch);
  all["v_mfma_i32_32x32x4_2b_i8"] = mfma<I8, I8, Shape<32, 4, 2>>;
  all["v_mfma_i32_16x16x4_4b_i8"] = mfma<I8, I8, Shape<16, 4, 4>>;
  all["v_mfma_i32_4x4x4_16b_i8"] = mfma<I8, I8, Shape<4, 4, 16>>;
  all["v_mfma_i32_32x32x16_i8"] = mfma<I8, I8, Shape<32, 16>>;
  all["v_mfma_i32_16x16x32_i8"] = mfma<I8, I8, Shape<16, 32>>;
  all["v_mfma_f64_16x16x4_f64"] = mfma_f64<16, 1>;
  all["v_mfma_f64_4x4x4_4b_f64"] = mfma_f64<4, 4>;
  if (arch == Arch::gfx942) {
    add_8bit<Narrow<kFp8Fnuz>, Narrow<kBf8Fnuz>>(all);
    return;
  }
  add_8bit<Narrow<kFp8>, Narrow<kBf8>>(all);
  all["v_mfma_i32_16x16x64_i8"] = mfma<I8, I8, Shape<16, 64>>;
  all["v_mfma_i32_32x32x32_i8"] = mfma<I8, I8, Shape<32, 32>>;
  add_f8f6f4(all);
}

}  // namespace hk::emulator::HK_ISA
