// v_mfma_*_f8f6f4 (gfx950): A and B in formats of 8, 6 and 4 bits, with or without a scale per 32
// k.
#include "semantics/matrix.hpp"

namespace hk::emulator::HK_ISA {
namespace {

// Unpacks 32 elements of each lane to [k][M]. fp8 and bf8 have runs of 16: the first 16 elements of
// all lane groups come before the second 16. fp6, bf6 and fp4 have runs of 32. Assumes that
// operands of different formats each keep their own layout.
template <Format F, int M>
void unpack_lowp(const LaneRow* rows, float* out) {
  constexpr int kRun = F.bits() == 8 ? 16 : 32, kGroups = 64 / M;
  for (int j = 0; j < 32; ++j) {
    const int bit = j * F.bits(), word = bit / 32, shift = bit % 32;
    const bool straddles = shift + F.bits() > 32;
    for (int lane = 0; lane < kLanes; ++lane) {
      uint32_t bits = rows[word][lane] >> shift;
      if (straddles) bits |= rows[word + 1][lane] << (32 - shift);
      const int k = j / kRun * kRun * kGroups + lane / M * kRun + j % kRun;
      out[k * M + lane % M] = widen<F>(bits & ((1u << F.bits()) - 1));
    }
  }
}

template <int M>
void unpack_lowp(Wave& w, const Operand& operand, int format, float* out) {
  const auto* rows = reinterpret_cast<const LaneRow*>(register_row(w, operand));
  switch (format) {
    case 0: return unpack_lowp<kFp8, M>(rows, out);
    case 1: return unpack_lowp<kBf8, M>(rows, out);
    case 2: return unpack_lowp<kFp6, M>(rows, out);
    case 3: return unpack_lowp<kBf6, M>(rows, out);
    case 4: return unpack_lowp<kFp4, M>(rows, out);
  }
  throw Unsupported("f8f6f4 format " + std::to_string(format) + ": 0 to 4 exist");
}

// Loads the E8M0 scales of (block of 32 k, row or column): lane M * block + row, byte by op_sel.
template <int M>
void load_scales(Wave& w, const Instruction& in, int n, double* out) {
  const int byte = (in.op_sel >> n & 1) | (in.op_sel_hi >> n & 1) << 1;
  Row scratch;
  const uint32_t* row = source_row(w, in, 3 + n, 0, As::b32, scratch);
  for (int lane = 0; lane < kLanes; ++lane) {
    const int exponent = int(row[lane] >> (8 * byte) & 255);
    out[lane] = exponent == 255 ? std::nan("") : std::ldexp(1.0, exponent - 127);
  }
}

template <int M, int K, bool kScaled>
void mfma_f8f6f4(Wave& w, const Instruction& in) {
  using S = Shape<M, 32>;
  alignas(64) float a[K * M], b[K * M], d[S::registers][kLanes], part[S::registers][kLanes];
  double scale_a[kLanes] = {}, scale_b[kLanes] = {};
  unpack_lowp<M>(w, in.src[0], in.cbsz, a);
  unpack_lowp<M>(w, in.src[1], in.blgp, b);
  load_c<float>(w, in.src[2], S::registers, d);
  if constexpr (kScaled) {
    load_scales<M>(w, in, 0, scale_a);
    load_scales<M>(w, in, 1, scale_b);
  }
  for (int block = 0; block < K / 32; ++block) {
    std::memset(part, 0, sizeof part);
    multiply<float, S>(a + block * 32 * M, b + block * 32 * M, part);
    for (int r = 0; r < S::registers; ++r)
      for (int g = 0; g < S::groups; ++g) {
        const double row = scale_a[M * block + 4 * S::groups * (r / 4) + 4 * g + r % 4];
        for (int c = 0; c < M; ++c) {
          const double scale = kScaled ? row * scale_b[M * block + c] : 1.0;
          float& sum = d[r][g * M + c];
          sum = float(double(sum) + scale * part[r][g * M + c]);
          sum = sum == sum ? sum : as_float(0x7fc00000u);
        }
      }
  }
  std::memcpy(register_row(w, in.dst[0]), d, sizeof d);
}

}  // namespace

void add_f8f6f4(Semantics& all) {
  all["v_mfma_f32_16x16x128_f8f6f4"] = mfma_f8f6f4<16, 128, false>;
  all["v_mfma_f32_32x32x64_f8f6f4"] = mfma_f8f6f4<32, 64, false>;
  all["v_mfma_scale_f32_16x16x128_f8f6f4"] = mfma_f8f6f4<16, 128, true>;
  all["v_mfma_scale_f32_32x32x64_f8f6f4"] = mfma_f8f6f4<32, 64, true>;
}

}  // namespace hk::emulator::HK_ISA
