// v_cvt_scalef32_* of fp4, fp6 and bf6 (gfx950): numbers over a scale become codes of 4 or 6 bits,
// and codes become numbers times a scale.
//
// Only the exponent of the scale counts. Numbers beyond the largest become the largest, and so does
// NaN, for which there is no code (amd_hip_ocp_host.hpp of HIP). No kernel may rely on the latter.
#include "semantics/lanes.hpp"

namespace hk::emulator::HK_ISA {
namespace {

using u32 = uint32_t;
constexpr int kCodes = 32;  // of an instruction for 6-bit codes
constexpr int kCodeWords = 6;

// 2 to the power of the scale's exponent, which may be negated; NaN for exponent 255.
double power_of_scale(u32 scale, int sign) {
  const int exponent = int(scale >> 23 & 255);
  return exponent == 255 ? std::numeric_limits<double>::quiet_NaN()
                         : std::ldexp(1.0, sign * (exponent - 127));
}

// A product in double is exact, and its rounding to odd keeps what the next rounding needs.
template <Format F>
u32 code_over(float value, u32 scale) {
  return narrow<F>(to_odd(double(value) * power_of_scale(scale, -1)), Rounding::nearest_even, true);
}
template <Format F>
float value_times(u32 code, u32 scale) {
  constexpr u32 kMask = (1u << F.bits()) - 1;
  return float(double(widen<F>(code & kMask)) * power_of_scale(scale, 1));
}

template <Format F>
float half_of(u32 pair, int half) {
  return widen<F>(half ? pair >> 16 : pair & 0xffffu);
}

// Numbers of a source that several registers hold, two to a register unless F is f32.
struct WideSource {
  const u32* rows[32];
  Row scratch[32];

  WideSource(Wave& w, const Instruction& in, int n, int registers, As as) {
    for (int r = 0; r < registers; ++r) rows[r] = source_row(w, in, n, r, as, scratch[r]);
  }
};

// ---- fp4: two codes in the byte that op_sel names ----

// Puts two codes in byte op_sel[3:2] of dst, and keeps the other bytes.
void write_byte(Wave& w, const Instruction& in, Row& codes) {
  const int shift = 8 * (in.op_sel >> 2 & 3);
  const u32* const old = register_row(w, in.dst[0]);
  for (int lane = 0; lane < kLanes; ++lane)
    codes.lane[lane] = (old[lane] & ~(255u << shift)) | codes.lane[lane] << shift;
  write_row(w, in, 0, codes);
}
void pack_fp4_f32(Wave& w, const Instruction& in) {
  Row codes;
  for_lanes<float, float, u32>(w, in, [&](int lane, float a, float b, u32 scale) {
    codes.lane[lane] = code_over<kFp4>(a, scale) | code_over<kFp4>(b, scale) << 4;
  });
  write_byte(w, in, codes);
}
template <Format kFrom>
void pack_fp4_pair(Wave& w, const Instruction& in) {
  Row codes;
  for_lanes<u32, u32>(w, in, [&](int lane, u32 pair, u32 scale) {
    const float a = half_of<kFrom>(pair, 0), b = half_of<kFrom>(pair, 1);
    codes.lane[lane] = code_over<kFp4>(a, scale) | code_over<kFp4>(b, scale) << 4;
  });
  write_byte(w, in, codes);
}

// Unpacks the two codes in byte op_sel[1:0] of src.
template <Format kTo>
void unpack_fp4(Wave& w, const Instruction& in) {
  const int shift = 8 * (in.op_sel & 3);
  Row result;
  for_lanes<u32, u32>(w, in, [&](int lane, u32 codes, u32 scale) {
    const auto at = [&](int bit) {
      return narrow<kTo>(value_times<kFp4>(codes >> (shift + bit), scale)) & 0xffffu;
    };
    result.lane[lane] = at(0) | at(4) << 16;
  });
  write_row(w, in, 0, result);
}
void unpack_fp4_f32(Wave& w, const Instruction& in) {
  const int shift = 8 * (in.op_sel & 3);
  Row result[2];
  for_lanes<u32, u32>(w, in, [&](int lane, u32 codes, u32 scale) {
    for (int i = 0; i < 2; ++i)
      result[i].lane[lane] = as_bits(value_times<kFp4>(codes >> (shift + 4 * i), scale));
  });
  write_row(w, in, 1, result[1]);
  write_row(w, in, 0, result[0]);
}

// ---- fp6, bf6: 32 codes in six registers, the lowest bits first ----

// Writes code(lane, i) for the i'th of 32 codes.
template <class F>
void write_codes(Wave& w, const Instruction& in, F&& code) {
  Row words[kCodeWords] = {};
  for (int i = 0; i < kCodes; ++i) {
    const int word = 6 * i / 32, shift = 6 * i % 32;
    for (int lane = 0; lane < kLanes; ++lane) {
      const u32 bits = code(lane, i);
      words[word].lane[lane] |= bits << shift;
      if (shift > 26) words[word + 1].lane[lane] |= bits >> (32 - shift);
    }
  }
  for (int word = 0; word < kCodeWords; ++word) write_row(w, in, word, words[word]);
}

// The instruction writes some codes before it has read all numbers (LLVM's pull request 188809).
void check_apart(const Instruction& in, const Operand& source, int registers) {
  const int first = in.dst[0].index, from = source.index;
  if (source.kind == in.dst[0].kind && first < from + registers && from < first + kCodeWords)
    throw Unsupported("v_cvt_scalef32_2xpk16_*: the codes must not overlap a source");
}

// The sources take turns: code 2i is of the first one's i'th number, code 2i + 1 of the second's.
template <Format F>
void pack_two_f32x16(Wave& w, const Instruction& in) {
  for (int n = 0; n < 3; ++n) check_apart(in, in.src[n], n < 2 ? kCodes / 2 : 1);
  const WideSource a(w, in, 0, kCodes / 2, As::f32), b(w, in, 1, kCodes / 2, As::f32);
  const WideSource scale(w, in, 2, 1, As::b32);
  write_codes(w, in, [&](int lane, int i) {
    const u32 number = (i % 2 ? b : a).rows[i / 2][lane];
    return code_over<F>(as_float(number), scale.rows[0][lane]);
  });
}
template <Format F, Format kFrom>
void pack_32(Wave& w, const Instruction& in) {
  const WideSource pairs(w, in, 0, kCodes / 2, As::b32), scale(w, in, 1, 1, As::b32);
  write_codes(w, in, [&](int lane, int i) {
    return code_over<F>(half_of<kFrom>(pairs.rows[i / 2][lane], i % 2), scale.rows[0][lane]);
  });
}

// Reads 32 codes times their scale; `take` gets the lane, the number of the code, and its value.
template <Format F, class Take>
void read_codes(Wave& w, const Instruction& in, Take&& take) {
  const WideSource words(w, in, 0, kCodeWords, As::b32), scale(w, in, 1, 1, As::b32);
  for (int i = 0; i < kCodes; ++i) {
    const int word = 6 * i / 32, shift = 6 * i % 32;
    for (int lane = 0; lane < kLanes; ++lane) {
      u32 code = words.rows[word][lane] >> shift;
      if (shift > 26) code |= words.rows[word + 1][lane] << (32 - shift);
      take(lane, i, value_times<F>(code, scale.rows[0][lane]));
    }
  }
}
template <Format F>
void unpack_32_f32(Wave& w, const Instruction& in) {
  Row result[kCodes];
  read_codes<F>(w, in,
                [&](int lane, int i, float value) { result[i].lane[lane] = as_bits(value); });
  for (int i = 0; i < kCodes; ++i) write_row(w, in, i, result[i]);
}
template <Format F, Format kTo>
void unpack_32(Wave& w, const Instruction& in) {
  Row result[kCodes / 2] = {};
  read_codes<F>(w, in, [&](int lane, int i, float value) {
    result[i / 2].lane[lane] |= (narrow<kTo>(value) & 0xffffu) << (i % 2 * 16);
  });
  for (int i = 0; i < kCodes / 2; ++i) write_row(w, in, i, result[i]);
}

void add_fp4(Semantics& all) {
  all["v_cvt_scalef32_pk_fp4_f32"] = pack_fp4_f32;
  all["v_cvt_scalef32_pk_fp4_f16"] = pack_fp4_pair<kF16>;
  all["v_cvt_scalef32_pk_fp4_bf16"] = pack_fp4_pair<kBf16>;
  all["v_cvt_scalef32_pk_f32_fp4"] = unpack_fp4_f32;
  all["v_cvt_scalef32_pk_f16_fp4"] = unpack_fp4<kF16>;
  all["v_cvt_scalef32_pk_bf16_fp4"] = unpack_fp4<kBf16>;
}

void add_fp6(Semantics& all) {
  all["v_cvt_scalef32_2xpk16_fp6_f32"] = pack_two_f32x16<kFp6>;
  all["v_cvt_scalef32_2xpk16_bf6_f32"] = pack_two_f32x16<kBf6>;
  all["v_cvt_scalef32_pk32_fp6_f16"] = pack_32<kFp6, kF16>;
  all["v_cvt_scalef32_pk32_fp6_bf16"] = pack_32<kFp6, kBf16>;
  all["v_cvt_scalef32_pk32_bf6_f16"] = pack_32<kBf6, kF16>;
  all["v_cvt_scalef32_pk32_bf6_bf16"] = pack_32<kBf6, kBf16>;
  all["v_cvt_scalef32_pk32_f32_fp6"] = unpack_32_f32<kFp6>;
  all["v_cvt_scalef32_pk32_f32_bf6"] = unpack_32_f32<kBf6>;
  all["v_cvt_scalef32_pk32_f16_fp6"] = unpack_32<kFp6, kF16>;
  all["v_cvt_scalef32_pk32_f16_bf6"] = unpack_32<kBf6, kF16>;
  all["v_cvt_scalef32_pk32_bf16_fp6"] = unpack_32<kFp6, kBf16>;
  all["v_cvt_scalef32_pk32_bf16_bf6"] = unpack_32<kBf6, kBf16>;
}

}  // namespace

void add_convert_narrow(Semantics& all, Arch arch) {
  if (arch != Arch::gfx950) return;
  add_fp4(all);
  add_fp6(all);
}

}  // namespace hk::emulator::HK_ISA
