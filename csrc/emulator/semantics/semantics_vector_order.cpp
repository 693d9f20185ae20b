// VALU minima, maxima and medians of f32, f64 and f16: they choose among their sources' bits.
#include "semantics/lanes.hpp"

namespace hk::emulator::HK_ISA {
namespace {

// A float's bits and its value.
template <class T>
struct Number {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  static constexpr int kMantissa = sizeof(T) == 8 ? 52 : sizeof(T) == 4 ? 23 : 10;
  static constexpr Bits kQuiet = Bits(1) << (kMantissa - 1);
  Bits bits;
  std::conditional_t<sizeof(T) == 8, double, float> value;

  Number(T source) {
    if constexpr (std::is_same_v<T, Half>) {
      bits = uint32_t(source);
      value = widen<kF16>(bits);
    } else {
      bits = std::bit_cast<Bits>(source);
      value = source;
    }
  }
  Number(Bits b, decltype(value) v) : bits(b), value(v) {}
  bool nan() const { return value != value; }
  bool signalling() const { return nan() && !(bits & kQuiet); }
  Number quiet() const { return {bits | kQuiet, value}; }
  T result() const {
    if constexpr (std::is_same_v<T, Half>)
      return Half(uint16_t(bits));
    else
      return std::bit_cast<T>(bits);
  }
};

// The smaller or larger of two numbers. If one is NaN, it is the other one; in IEEE mode, a
// signalling NaN made quiet. -0 < +0.
template <bool kMax, class N>
N pick(N a, N b, bool ieee) {
  const bool first = kMax ? a.value > b.value : a.value < b.value;
  const auto zeros = kMax ? a.bits & b.bits : a.bits | b.bits;  // of equal numbers
  N result = a.value == b.value ? N{zeros, a.value} : first ? a : b;
  result = b.nan() ? a : result;
  result = a.nan() ? b : result;
  result = ieee && b.signalling() ? b.quiet() : result;
  return ieee && a.signalling() ? a.quiet() : result;
}

// IEEE 754-2019 minimum and maximum: a NaN wins, made quiet.
template <bool kMax, class N>
N pick_or_nan(N a, N b) {
  N result = pick<kMax>(a, b, false);
  result = b.nan() ? b.quiet() : result;
  return a.nan() ? a.quiet() : result;
}

template <class N>
N median(N a, N b, N c, bool ieee) {
  const N least = pick<false>(pick<false>(a, b, ieee), c, ieee);
  const N most = pick<true>(pick<true>(a, b, ieee), c, ieee);
  const N result = most.value == a.value   ? pick<true>(b, c, ieee)
                   : most.value == b.value ? pick<true>(a, c, ieee)
                                           : pick<true>(a, b, ieee);
  return a.nan() || b.nan() || c.nan() ? least : result;
}

template <class T>
void finish_choice(Wave& w, const Instruction& in, Row* result) {
  if constexpr (!std::is_same_v<T, Half>) {
    finish<T>(w, in, result);
  } else {
    if (in.clamp || in.omod) {
      for (uint32_t& lane : result->lane) lane = as_bits(widen<kF16>(lane));
      round_f16(w, in, *result, Rounding::nearest_even);
    }
    write_half(w, in, *result);
  }
}

// Handler of F(ieee, numbers...).
template <class T, int kArity, class F>
Execute choosing(F) {
  return [](Wave& w, const Instruction& in) {
    const bool mode = ieee(w.mode);
    Row result[sizeof(T) == 8 ? 2 : 1];
    const auto body = [&](int lane, auto... a) {
      store_lane<T>(result, lane, F{}(mode, Number<T>(a)...).result());
    };
    if constexpr (kArity == 2)
      for_lanes<T, T>(w, in, body);
    else
      for_lanes<T, T, T>(w, in, body);
    finish_choice<T>(w, in, result);
  };
}

template <class T>
void add(Semantics& all, const std::string& type) {
  using N = Number<T>;
  all["v_min" + type] = choosing<T, 2>([](bool m, N a, N b) { return pick<false>(a, b, m); });
  all["v_max" + type] = choosing<T, 2>([](bool m, N a, N b) { return pick<true>(a, b, m); });
  if constexpr (sizeof(T) < 8) {
    all["v_min3" + type] = choosing<T, 3>(
        [](bool m, N a, N b, N c) { return pick<false>(pick<false>(a, b, m), c, m); });
    all["v_max3" + type] =
        choosing<T, 3>([](bool m, N a, N b, N c) { return pick<true>(pick<true>(a, b, m), c, m); });
    all["v_med3" + type] = choosing<T, 3>([](bool m, N a, N b, N c) { return median(a, b, c, m); });
  }
}

// Handler of F(ieee, numbers...) on both halves of a register.
template <int kArity, class F>
Execute packed_choice(F) {
  return [](Wave& w, const Instruction& in) {
    const bool mode = ieee(w.mode);
    Row halves[2], scratch[3];
    for (int high = 0; high < 2; ++high) {
      const uint32_t* rows[3] = {};
      for (int n = 0; n < kArity; ++n) rows[n] = packed_row(w, in, n, high, As::f16, scratch[n]);
      for (int lane = 0; lane < kLanes; ++lane) {
        const auto number = [&](int n) { return Number<Half>(Half(rows[n][lane])); };
        if constexpr (kArity == 2)
          halves[high].lane[lane] = F{}(mode, number(0), number(1)).bits;
        else
          halves[high].lane[lane] = F{}(mode, number(0), number(1), number(2)).bits;
      }
      if (in.clamp) {
        for (uint32_t& lane : halves[high].lane) lane = as_bits(widen<kF16>(lane));
        round_f16(w, in, halves[high], Rounding::nearest_even);
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) halves[0].lane[lane] |= halves[1].lane[lane] << 16;
    blend(register_row(w, in.dst[0]), halves[0].lane, w.exec());
  };
}

}  // namespace

void add_order(Semantics& all, Arch arch) {
  add<float>(all, "_f32");
  add<double>(all, "_f64");
  add<Half>(all, "_f16");
  using N = Number<Half>;
  using F = Number<float>;
  all["v_pk_min_f16"] = packed_choice<2>([](bool m, N a, N b) { return pick<false>(a, b, m); });
  all["v_pk_max_f16"] = packed_choice<2>([](bool m, N a, N b) { return pick<true>(a, b, m); });
  if (arch != Arch::gfx950) return;
  all["v_minimum3_f32"] = choosing<float, 3>(
      [](bool, F a, F b, F c) { return pick_or_nan<false>(pick_or_nan<false>(a, b), c); });
  all["v_maximum3_f32"] = choosing<float, 3>(
      [](bool, F a, F b, F c) { return pick_or_nan<true>(pick_or_nan<true>(a, b), c); });
  all["v_pk_minimum3_f16"] = packed_choice<3>(
      [](bool, N a, N b, N c) { return pick_or_nan<false>(pick_or_nan<false>(a, b), c); });
  all["v_pk_maximum3_f16"] = packed_choice<3>(
      [](bool, N a, N b, N c) { return pick_or_nan<true>(pick_or_nan<true>(a, b), c); });
}

}  // namespace hk::emulator::HK_ISA
