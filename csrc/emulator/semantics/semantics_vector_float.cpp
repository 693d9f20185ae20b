// VALU arithmetic on f32, f64 and f16 with MODE's rounding.
#include "semantics/division.hpp"
#include "semantics/lanes.hpp"

namespace hk::emulator::HK_ISA {
namespace {

template <class T>
void division_scale(Wave& w, const Instruction& in) {
  Row result[sizeof(T) / 4], off;
  for_lanes<T, T, T>(w, in, [&](int lane, T a, T b, T c) {
    bool out;
    store_lane<T>(result, lane, division_scaled(a, b, c, out));
    off.lane[lane] = out;
  });
  uint64_t mask = 0;
  for (int lane = 0; lane < kLanes; ++lane) mask |= uint64_t(off.lane[lane]) << lane;
  finish<T>(w, in, result);
  write_mask(w, in, in.dst[1], mask);
}

template <class T>
void division_fmas(Wave& w, const Instruction& in) {
  Row result[sizeof(T) / 4];
  {
    const HostRounding rounding(rounding_of(w.mode, Source<T>::as));
    const uint64_t vcc = w.vcc();
    for_lanes<T, T, T>(w, in, [&](int lane, T a, T b, T c) {
      store_lane<T>(result, lane,
                    vcc >> lane & 1 ? division_scaled_back(a, b, c) : std::fma(a, b, c));
    });
  }
  finish<T>(w, in, result);
}

void add_f32(Semantics& all) {
  all["v_add_f32"] = arithmetic([](float a, float b) { return a + b; });
  all["v_sub_f32"] = arithmetic([](float a, float b) { return a - b; });
  all["v_subrev_f32"] = arithmetic([](float a, float b) { return b - a; });
  all["v_mul_f32"] = arithmetic([](float a, float b) { return a * b; });
  all["v_mul_legacy_f32"] =
      arithmetic([](float a, float b) { return a == 0 || b == 0 ? 0.0f : a * b; });
  const auto fma = [](float a, float b, float c) { return std::fma(a, b, c); };
  for (const char* name : {"v_fma_f32", "v_fmac_f32", "v_fmamk_f32", "v_fmaak_f32"})
    all[name] = arithmetic(fma);
  all["v_div_scale_f32"] = division_scale<float>;
  all["v_div_fmas_f32"] = division_fmas<float>;
  all["v_div_fixup_f32"] = plain([](float a, float b, float c) { return division_fixed(a, b, c); });
}

void add_f64(Semantics& all) {
  all["v_add_f64"] = arithmetic([](double a, double b) { return a + b; });
  all["v_mul_f64"] = arithmetic([](double a, double b) { return a * b; });
  const auto fma = [](double a, double b, double c) { return std::fma(a, b, c); };
  all["v_fma_f64"] = arithmetic(fma);
  all["v_fmac_f64"] = arithmetic(fma);
  all["v_div_scale_f64"] = division_scale<double>;
  all["v_div_fmas_f64"] = division_fmas<double>;
  all["v_div_fixup_f64"] =
      plain([](double a, double b, double c) { return division_fixed(a, b, c); });
}

// Adds handlers for f16. Sums and products of two f16 are exact in f64, and products also in f32.
void add_f16(Semantics& all) {
  all["v_add_f16"] = half<Of::sums>([](double a, double b) { return a + b; });
  all["v_sub_f16"] = half<Of::sums>([](double a, double b) { return a - b; });
  all["v_subrev_f16"] = half<Of::sums>([](double a, double b) { return b - a; });
  all["v_mul_f16"] = half([](float a, float b) { return a * b; });
  const auto fma = [](double a, double b, double c) { return fma_to_odd(a * b, c); };
  for (const char* name : {"v_fma_f16", "v_fma_legacy_f16", "v_fmamk_f16", "v_fmaak_f16"})
    all[name] = half<Of::sums>(fma);
  // v_mad: the product is rounded before the addition
  const auto mad = [](double a, double b, double c) {
    return widen<kF16>(narrow<kF16>(float(a * b))) + c;
  };
  for (const char* name :
       {"v_mad_f16", "v_mac_f16", "v_mad_legacy_f16", "v_madmk_f16", "v_madak_f16"})
    all[name] = half<Of::sums>(mad);
  for (const char* name : {"v_div_fixup_f16", "v_div_fixup_legacy_f16"})
    all[name] = half([](float a, float b, float c) { return division_fixed_half(a, b, c); });
}

// Mixed-precision arithmetic in f32: by op_sel_hi and op_sel, each source is f32 or one half of a
// register as f16. neg_hi takes its absolute value.
Row mixed(Wave& w, const Instruction& in) {
  Row sources[3], result;
  for (int n = 0; n < 3; ++n) {
    const bool is_half = in.op_sel_hi >> n & 1;
    Instruction f32 = in;
    f32.op_sel = is_half ? in.op_sel : 0;
    f32.neg_lo = 0;
    f32.src[n].negate = f32.src[n].absolute = false;
    const uint32_t* row = packed_row(w, f32, n, false, is_half ? As::f16 : As::f32, sources[n]);
    for (int lane = 0; lane < kLanes; ++lane) {
      uint32_t bits = is_half ? as_bits(widen<kF16>(row[lane])) : row[lane];
      if (in.neg_hi >> n & 1) bits &= 0x7fffffffu;
      if (in.neg_lo >> n & 1) bits ^= 0x80000000u;
      sources[n].lane[lane] = bits;
    }
  }
  {
    const HostRounding rounding(rounding_of(w.mode, As::f32));
    for (int lane = 0; lane < kLanes; ++lane)
      result.lane[lane] =
          as_bits(std::fma(as_float(sources[0].lane[lane]), as_float(sources[1].lane[lane]),
                           as_float(sources[2].lane[lane])));
  }
  const uint32_t* rows[] = {sources[0].lane, sources[1].lane, sources[2].lane};
  settle_nans(result, rows, 3);
  return result;
}

template <bool kHigh>
void mix_to_half(Wave& w, const Instruction& in) {
  Row result = mixed(w, in);
  round_f16(w, in, result, rounding_of(w.mode, As::f16));
  const uint32_t* const old = register_row(w, in.dst[0]);
  for (int lane = 0; lane < kLanes; ++lane)
    result.lane[lane] = kHigh ? result.lane[lane] << 16 | (old[lane] & 0xffffu)
                              : result.lane[lane] | (old[lane] & 0xffff0000u);
  blend(register_row(w, in.dst[0]), result.lane, w.exec());
}

}  // namespace

void add_float(Semantics& all, Arch) {
  add_f32(all);
  add_f64(all);
  add_f16(all);
  all["v_fma_mix_f32"] = [](Wave& w, const Instruction& in) {
    Row result = mixed(w, in);
    finish<float>(w, in, &result);
  };
  all["v_fma_mixlo_f16"] = mix_to_half<false>;
  all["v_fma_mixhi_f16"] = mix_to_half<true>;
}

}  // namespace hk::emulator::HK_ISA
