// v_cvt_*: conversions between number formats.
#include "semantics/lanes.hpp"

namespace hk::emulator::HK_ISA {
namespace {

using u32 = uint32_t;
using i32 = int32_t;

// Converts to an integer, towards zero and saturated; NaN becomes 0.
template <class To, class From>
To to_integer(From a) {
  constexpr double kLeast = std::numeric_limits<To>::min(), kMost = std::numeric_limits<To>::max();
  const double x = a != a ? 0.0 : double(a);
  return To(int64_t(x < kLeast ? kLeast : x > kMost ? kMost : x));
}

// Maps [-1, 1] or [0, 1] to the whole range of an integer, rounding to nearest even.
template <class To>
To to_norm(float a) {
  constexpr double kMost = std::numeric_limits<To>::max(),
                   kLeast = std::is_signed_v<To> ? -kMost : 0;
  const double x = a != a ? 0.0 : std::nearbyint(double(a) * kMost);
  return To(int32_t(x < kLeast ? kLeast : x > kMost ? kMost : x));
}

// Converts f32 to a byte, rounded to nearest even and saturated.
u32 to_byte(float a) {
  const double x = a != a ? 0.0 : std::nearbyint(double(a));
  return u32(x < 0 ? 0 : x > 255 ? 255 : x);
}

// Handler that packs two results into the halves of a register.
template <class F, class T = float>
Execute pack(F) {
  return [](Wave& w, const Instruction& in) {
    Row result;
    for_lanes<T, T>(w, in, [&](int lane, T a, T b) {
      result.lane[lane] = (F{}(a) & 0xffffu) | u32(F{}(b)) << 16;
    });
    write_row(w, in, 0, result);
  };
}

// Rounds f32 values to f16 results, flushed according to MODE, and writes them.
void round_and_write(Wave& w, const Instruction& in, Row& result, Rounding rounding) {
  round_f16(w, in, result, rounding);
  write_half(w, in, result);
}

template <Rounding kRounding>
void pack_f16(Wave& w, const Instruction& in) {
  Row low, high;
  for_lanes<float, float>(w, in, [&](int lane, float a, float b) {
    low.lane[lane] = as_bits(a);
    high.lane[lane] = as_bits(b);
  });
  round_f16(w, in, low, kRounding);
  round_f16(w, in, high, kRounding);
  for (int lane = 0; lane < kLanes; ++lane) low.lane[lane] |= high.lane[lane] << 16;
  write_row(w, in, 0, low);
}

// Packs two fp8 into the half of dst that op_sel bit 3 names, and keeps the other half. Numbers
// beyond the largest become the largest with FP16_OVFL, otherwise NaN (fp8) or infinity (bf8).
template <Format F>
struct Fp8Packer {
  explicit Fp8Packer(const Wave& w, const Instruction& in)
      : saturate(fp16_overflow(w.mode)), high(in.op_sel >> 3 & 1) {}

  u32 operator()(float a, float b, u32 old) const {
    const u32 both = narrow<F>(a, Rounding::nearest_even, saturate) |
                     narrow<F>(b, Rounding::nearest_even, saturate) << 8;
    return high ? both << 16 | (old & 0xffffu) : both | (old & 0xffff0000u);
  }

 private:
  bool saturate, high;
};
template <Format F>
void pack_fp8(Wave& w, const Instruction& in) {
  const Fp8Packer<F> pack(w, in);
  const u32* const old = register_row(w, in.dst[0]);
  Row result;
  for_lanes<float, float>(
      w, in, [&](int lane, float a, float b) { result.lane[lane] = pack(a, b, old[lane]); });
  write_row(w, in, 0, result);
}

// Divides by the power of two with the exponent of `scale`; exponent 255: NaN.
float over_scale(float value, u32 scale) {
  const int exponent = int(scale >> 23 & 255);
  return exponent == 255 ? std::numeric_limits<float>::quiet_NaN()
                         : std::ldexp(value, 127 - exponent);
}

// Packs two numbers as fp8, each over the scale (CDNA4 ISA, V_CVT_SCALEF32_PK_FP8_*).
template <Format F>
void pack_scaled_f32(Wave& w, const Instruction& in) {
  const Fp8Packer<F> pack(w, in);
  const u32* const old = register_row(w, in.dst[0]);
  Row result;
  for_lanes<float, float, u32>(w, in, [&](int lane, float a, float b, u32 scale) {
    result.lane[lane] = pack(over_scale(a, scale), over_scale(b, scale), old[lane]);
  });
  write_row(w, in, 0, result);
}
template <Format F, Format kFrom>
void pack_scaled_pair(Wave& w, const Instruction& in) {
  const Fp8Packer<F> pack(w, in);
  const u32* const old = register_row(w, in.dst[0]);
  Row result;
  for_lanes<u32, u32>(w, in, [&](int lane, u32 pair, u32 scale) {
    const float a = widen<kFrom>(pair & 0xffffu), b = widen<kFrom>(pair >> 16);
    result.lane[lane] = pack(over_scale(a, scale), over_scale(b, scale), old[lane]);
  });
  write_row(w, in, 0, result);
}

// Unpacks fp8. SDWA selects the byte (or the half, for two); without SDWA it is the lowest.
template <Format F>
void unpack_fp8(Wave& w, const Instruction& in) {
  Row result;
  for_lanes<u32>(w, in, [&](int lane, u32 a) { result.lane[lane] = as_bits(widen<F>(a & 255)); });
  finish<float>(w, in, &result);
}
template <Format F>
void unpack_two_fp8(Wave& w, const Instruction& in) {
  Row result[2];
  for_lanes<u32>(w, in, [&](int lane, u32 a) {
    result[0].lane[lane] = as_bits(widen<F>(a & 255));
    result[1].lane[lane] = as_bits(widen<F>(a >> 8 & 255));
  });
  write_row(w, in, 1, result[1]);
  write_row(w, in, 0, result[0]);
}

// The value of an fp8 code, times the power of two with the exponent of `scale`.
template <Format F>
float scaled_fp8(u32 code, u32 scale) {
  const int exponent = int(scale >> 23 & 255);
  return exponent == 255 ? std::numeric_limits<float>::quiet_NaN()
                         : std::ldexp(widen<F>(code & 255), exponent - 127);
}

// Unpacks two fp8 from the half of src that op_sel bit 0 names. Multiplies them by the power of two
// with the exponent of the second source (CDNA4 ISA, V_CVT_SCALEF32_PK_*).
template <Format F, Format kTo>
void unpack_two_scaled_fp8(Wave& w, const Instruction& in) {
  const int half = in.op_sel & 1;
  Row result;
  for_lanes<u32, u32>(w, in, [&](int lane, u32 a, u32 scale) {
    const auto scaled = [&](u32 code) { return narrow<kTo>(scaled_fp8<F>(code, scale)) & 0xffffu; };
    result.lane[lane] = scaled(a >> 16 * half) | scaled(a >> (16 * half + 8)) << 16;
  });
  write_row(w, in, 0, result);
}
template <Format F>
void unpack_two_scaled_fp8_to_f32(Wave& w, const Instruction& in) {
  const int half = in.op_sel & 1;
  Row result[2];
  for_lanes<u32, u32>(w, in, [&](int lane, u32 a, u32 scale) {
    result[0].lane[lane] = as_bits(scaled_fp8<F>(a >> 16 * half, scale));
    result[1].lane[lane] = as_bits(scaled_fp8<F>(a >> (16 * half + 8), scale));
  });
  write_row(w, in, 1, result[1]);
  write_row(w, in, 0, result[0]);
}

template <Format kFp8Format, Format kBf8Format>
void add_fp8(Semantics& all) {
  all["v_cvt_pk_fp8_f32"] = pack_fp8<kFp8Format>;
  all["v_cvt_pk_bf8_f32"] = pack_fp8<kBf8Format>;
  all["v_cvt_f32_fp8"] = unpack_fp8<kFp8Format>;
  all["v_cvt_f32_bf8"] = unpack_fp8<kBf8Format>;
  all["v_cvt_pk_f32_fp8"] = unpack_two_fp8<kFp8Format>;
  all["v_cvt_pk_f32_bf8"] = unpack_two_fp8<kBf8Format>;
}

template <int kByte>
Execute from_byte() {
  return plain([](u32 a) { return float(i32(a >> (8 * kByte) & 255)); });
}

void add_f32(Semantics& all) {
  all["v_cvt_f32_i32"] = arithmetic([](i32 a) { return float(a); });
  all["v_cvt_f32_u32"] = arithmetic([](u32 a) { return float(a); });
  all["v_cvt_f32_f64"] = arithmetic([](double a) { return float(a); });
  all["v_cvt_f64_f32"] = arithmetic([](float a) { return double(a); });
  all["v_cvt_f64_i32"] = plain([](i32 a) { return double(a); });
  all["v_cvt_f64_u32"] = plain([](u32 a) { return double(a); });
  all["v_cvt_u32_f32"] = plain([](float a) { return to_integer<u32>(a); });
  all["v_cvt_i32_f32"] = plain([](float a) { return to_integer<i32>(a); });
  all["v_cvt_u32_f64"] = plain([](double a) { return to_integer<u32>(a); });
  all["v_cvt_i32_f64"] = plain([](double a) { return to_integer<i32>(a); });
  all["v_cvt_rpi_i32_f32"] =
      plain([](float a) { return to_integer<i32>(std::floor(double(a) + 0.5)); });
  all["v_cvt_flr_i32_f32"] = plain([](float a) { return to_integer<i32>(std::floor(a)); });
  all["v_cvt_f32_ubyte0"] = from_byte<0>();
  all["v_cvt_f32_ubyte1"] = from_byte<1>();
  all["v_cvt_f32_ubyte2"] = from_byte<2>();
  all["v_cvt_f32_ubyte3"] = from_byte<3>();
  // a signed nibble, in sixteenths
  all["v_cvt_off_f32_i4"] = plain([](u32 a) { return float(i32(a << 28) >> 28) / 16; });
  all["v_cvt_pk_u8_f32"] = plain([](float a, u32 byte, u32 old) {
    const u32 shift = 8 * (byte & 3);
    return (old & ~(255u << shift)) | to_byte(a) << shift;
  });
}

void add_f16(Semantics& all) {
  all["v_cvt_f16_f32"] = [](Wave& w, const Instruction& in) {
    Row result;
    for_lanes<float>(w, in, [&](int lane, float a) { result.lane[lane] = as_bits(a); });
    round_and_write(w, in, result, rounding_of(w.mode, As::f16));
  };
  all["v_cvt_f32_f16"] = [](Wave& w, const Instruction& in) {
    Row result;
    for_lanes<Half>(w, in, [&](int lane, Half a) {
      const u32 bits = as_bits(widen<kF16>(u32(a)));
      result.lane[lane] = (bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan(bits) : bits;
    });
    finish<float>(w, in, &result);
  };
  all["v_cvt_f16_u16"] = half([](uint16_t a) { return float(a); });
  all["v_cvt_f16_i16"] = half([](int16_t a) { return float(a); });
  const auto number = [](Half a) { return widen<kF16>(u32(a)); };
  all["v_cvt_u16_f16"] = plain([](Half a) { return to_integer<uint16_t>(decltype(number){}(a)); });
  all["v_cvt_i16_f16"] = plain([](Half a) { return to_integer<int16_t>(decltype(number){}(a)); });
  all["v_cvt_norm_i16_f16"] = plain([](Half a) { return to_norm<int16_t>(decltype(number){}(a)); });
  all["v_cvt_norm_u16_f16"] =
      plain([](Half a) { return to_norm<uint16_t>(decltype(number){}(a)); });
  const auto snorm = [](Half a) { return to_norm<int16_t>(decltype(number){}(a)); };
  const auto unorm = [](Half a) { return to_norm<uint16_t>(decltype(number){}(a)); };
  all["v_cvt_pknorm_i16_f16"] = pack<decltype(snorm), Half>(snorm);
  all["v_cvt_pknorm_u16_f16"] = pack<decltype(unorm), Half>(unorm);
  all["v_pack_b32_f16"] = [](Wave& w, const Instruction& in) {
    Row result;
    for_lanes<Half, Half>(
        w, in, [&](int lane, Half a, Half b) { result.lane[lane] = u32(a) | u32(b) << 16; });
    write_row(w, in, 0, result);
  };
}

void add_packs(Semantics& all) {
  all["v_cvt_pkrtz_f16_f32"] = pack_f16<Rounding::toward_zero>;
  all["v_cvt_pknorm_i16_f32"] = pack([](float a) { return to_norm<int16_t>(a); });
  all["v_cvt_pknorm_u16_f32"] = pack([](float a) { return to_norm<uint16_t>(a); });
  const auto u16 = [](u32 a) { return a > 65535 ? 65535u : a; };
  const auto i16 = [](i32 a) { return a < -32768 ? -32768 : a > 32767 ? 32767 : a; };
  all["v_cvt_pk_u16_u32"] = pack<decltype(u16), u32>(u16);
  all["v_cvt_pk_i16_i32"] = pack<decltype(i16), i32>(i16);
}

void add_gfx950(Semantics& all) {
  all["v_cvt_scalef32_pk_fp8_f32"] = pack_scaled_f32<kFp8>;
  all["v_cvt_scalef32_pk_bf8_f32"] = pack_scaled_f32<kBf8>;
  all["v_cvt_scalef32_pk_fp8_bf16"] = pack_scaled_pair<kFp8, kBf16>;
  all["v_cvt_scalef32_pk_bf8_bf16"] = pack_scaled_pair<kBf8, kBf16>;
  all["v_cvt_scalef32_pk_fp8_f16"] = pack_scaled_pair<kFp8, kF16>;
  all["v_cvt_scalef32_pk_bf8_f16"] = pack_scaled_pair<kBf8, kF16>;
  all["v_cvt_scalef32_pk_f32_fp8"] = unpack_two_scaled_fp8_to_f32<kFp8>;
  all["v_cvt_scalef32_pk_f32_bf8"] = unpack_two_scaled_fp8_to_f32<kBf8>;
  all["v_cvt_scalef32_pk_bf16_fp8"] = unpack_two_scaled_fp8<kFp8, kBf16>;
  all["v_cvt_scalef32_pk_bf16_bf8"] = unpack_two_scaled_fp8<kBf8, kBf16>;
  all["v_cvt_scalef32_pk_f16_fp8"] = unpack_two_scaled_fp8<kFp8, kF16>;
  all["v_cvt_scalef32_pk_f16_bf8"] = unpack_two_scaled_fp8<kBf8, kF16>;
  all["v_cvt_pk_f16_f32"] = pack_f16<Rounding::nearest_even>;
  all["v_cvt_pk_bf16_f32"] = pack([](float a) { return narrow<kBf16>(a); });
  all["v_cvt_f32_bf16"] = [](Wave& w, const Instruction& in) {
    Row result;
    for_lanes<uint16_t>(w, in, [&](int lane, uint16_t a) { result.lane[lane] = u32(a) << 16; });
    finish<float>(w, in, &result);
  };
}

}  // namespace

void add_convert(Semantics& all, Arch arch) {
  add_f32(all);
  add_f16(all);
  add_packs(all);
  if (arch == Arch::gfx950) {
    add_fp8<kFp8, kBf8>(all);
    add_gfx950(all);
  } else {
    add_fp8<kFp8Fnuz, kBf8Fnuz>(all);
  }
}

}  // namespace hk::emulator::HK_ISA
