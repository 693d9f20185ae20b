// VOP3P without matrices: two values per register, or two f32 in two registers, and dot products.
#include "semantics/lanes.hpp"

namespace hk::emulator::HK_ISA {
namespace {

using u16 = uint16_t;
using i16 = int16_t;
using u32 = uint32_t;
using i32 = int32_t;

// Handler of v_pk_*_f32. op_sel names the sources' dwords for dst dword 0, op_sel_hi for dword 1.
template <int kArity, class F>
Execute packed_f32(F) {
  return [](Wave& w, const Instruction& in) {
    Row result[2], scratch[3];
    for (int high = 0; high < 2; ++high) {
      const u32* rows[3] = {};
      for (int n = 0; n < kArity; ++n) rows[n] = packed_row(w, in, n, high, As::f32, scratch[n]);
      const u32 *const a = rows[0], *const b = rows[1], *const c = rows[2];
      u32 nan = 0;
      {
        const HostRounding rounding(rounding_of(w.mode, As::f32));
        for (int lane = 0; lane < kLanes; ++lane) {
          float value;
          if constexpr (kArity == 3)
            value = F{}(as_float(a[lane]), as_float(b[lane]), as_float(c[lane]));
          else
            value = F{}(as_float(a[lane]), as_float(b[lane]));
          nan |= u32(value != value);
          result[high].lane[lane] = as_bits(value);
        }
      }
      if (nan) settle_nans(result[high], rows, kArity);
      modify_f32(w, in, result[high]);
    }
    write_row(w, in, 1, result[1]);
    write_row(w, in, 0, result[0]);
  };
}

void move_two(Wave& w, const Instruction& in) {  // v_pk_mov_b32
  Row scratch[2];
  const u32* const low = packed_row(w, in, 0, false, As::b32, scratch[0]);
  // op_sel bit 1 chooses the second source's dword
  Instruction second = in;
  second.op_sel_hi = in.op_sel;
  const u32* const high = packed_row(w, second, 1, true, As::b32, scratch[1]);
  const uint64_t exec = w.exec();
  blend(register_row(w, in.dst[0], 0), low, exec);
  blend(register_row(w, in.dst[0], 1), high, exec);
}

// Makes a packed instruction of a VOP2 opcode, which has no op_sel: it uses both halves of all
// sources in place.
Instruction both_halves(const Instruction& vop2) {
  Instruction packed = vop2;
  packed.op_sel = packed.neg_lo = packed.neg_hi = 0;
  packed.op_sel_hi = 7;
  return packed;
}

// Replaces sums of exactly 0 by -0 if MODE rounds down (see Of::sums). `compute` fills `row` again
// with that rounding; only its zeros change.
template <class Compute>
void zeros_rounded_down(Row& row, Compute compute) {
  const Row nearest = row;
  {
    const HostRounding down(Rounding::down);
    compute();
  }
  for (int lane = 0; lane < kLanes; ++lane)
    if (nearest.lane[lane] != 0) row.lane[lane] = nearest.lane[lane];
}

// Handler of F on both 16-bit halves. F takes integers of type T, or f32 or f64 values of f16.
template <int kArity, class T, class F>
Execute packed_16(F) {
  constexpr bool kFloat = std::is_floating_point_v<T>;
  return [](Wave& w, const Instruction& in) {
    Row halves[2], scratch[3];
    for (int high = 0; high < 2; ++high) {
      const u32* rows[3] = {};
      for (int n = 0; n < kArity; ++n)
        rows[n] = packed_row(w, in, n, high, kFloat ? As::f16 : As::b16, scratch[n]);
      u32* const out = halves[high].lane;
      const auto run = [&](auto f, auto read) {
        for (int lane = 0; lane < kLanes; ++lane) {
          if constexpr (kArity == 3)
            out[lane] = f(read(rows[0][lane]), read(rows[1][lane]), read(rows[2][lane]));
          else
            out[lane] = f(read(rows[0][lane]), read(rows[1][lane]));
        }
      };
      if constexpr (kFloat) {
        const auto value = [](u32 bits) { return widen<kF16>(bits); };
        const auto compute = [](auto... a) {
          u32 nan = 0x7fc00000u;
          ((nan = a != a && nan == 0x7fc00000u ? quiet_nan(as_bits(a)) : nan), ...);
          const float result = to_odd(F{}(T(a)...));
          return result == result ? as_bits(result) : nan;
        };
        const Rounding rounding = rounding_of(w.mode, As::f16);
        run(compute, value);
        if (rounding == Rounding::down)
          zeros_rounded_down(halves[high], [&] { run(compute, value); });
        round_f16(w, in, halves[high], rounding);
      } else if (in.clamp) {
        run(
            [](auto... a) {
              const int64_t exact = F{}(int64_t(a)...);
              const int64_t least = std::numeric_limits<T>::min(),
                            most = std::numeric_limits<T>::max();
              return u32(u16(exact < least ? least : exact > most ? most : exact));
            },
            [](u32 bits) { return T(bits); });
      } else {
        run([](auto... a) { return u32(u16(F{}(a...))); }, [](u32 bits) { return T(bits); });
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) halves[0].lane[lane] |= halves[1].lane[lane] << 16;
    write_row(w, in, 0, halves[0]);
  };
}

void add_16(Semantics& all) {
  all["v_pk_add_f16"] = packed_16<2, double>([](auto a, auto b) { return a + b; });
  all["v_pk_mul_f16"] = packed_16<2, double>([](auto a, auto b) { return a * b; });
  const auto fma = [](double a, double b, double c) { return fma_to_odd(a * b, c); };
  all["v_pk_fma_f16"] = packed_16<3, double>(fma);
  all["v_pk_fmac_f16"] = [](Wave& w, const Instruction& in) {
    packed_16<3, double>(decltype(fma){})(w, both_halves(in));
  };
  all["v_pk_add_u16"] = packed_16<2, u16>([](auto a, auto b) { return a + b; });
  all["v_pk_sub_u16"] = packed_16<2, u16>([](auto a, auto b) { return a - b; });
  all["v_pk_add_i16"] = packed_16<2, i16>([](auto a, auto b) { return a + b; });
  all["v_pk_sub_i16"] = packed_16<2, i16>([](auto a, auto b) { return a - b; });
  all["v_pk_mul_lo_u16"] = packed_16<2, u16>([](auto a, auto b) { return int64_t(a) * b; });
  all["v_pk_mad_u16"] =
      packed_16<3, u16>([](auto a, auto b, auto c) { return int64_t(a) * b + c; });
  all["v_pk_mad_i16"] =
      packed_16<3, i16>([](auto a, auto b, auto c) { return int64_t(a) * b + c; });
  all["v_pk_min_u16"] = packed_16<2, u16>([](auto a, auto b) { return a < b ? a : b; });
  all["v_pk_max_u16"] = packed_16<2, u16>([](auto a, auto b) { return a >= b ? a : b; });
  all["v_pk_min_i16"] = packed_16<2, i16>([](auto a, auto b) { return a < b ? a : b; });
  all["v_pk_max_i16"] = packed_16<2, i16>([](auto a, auto b) { return a >= b ? a : b; });
  all["v_pk_lshlrev_b16"] = packed_16<2, u16>([](auto a, auto b) { return b << (a & 15); });
  all["v_pk_lshrrev_b16"] = packed_16<2, u16>([](auto a, auto b) { return b >> (a & 15); });
  all["v_pk_ashrrev_i16"] = packed_16<2, i16>([](auto a, auto b) { return b >> (a & 15); });
}

// ---- dot products: S2 + sum over the parts, in order ----

// Dot products of integers of kBits, with i32 or u32 sums, saturated if the instruction clamps.
template <class T, int kBits>
void dot_integer(Wave& w, const Instruction& in) {
  Row result;
  for_lanes<u32, u32, T>(w, in, [&](int lane, u32 a, u32 b, T c) {
    int64_t sum = c;
    for (int part = 0; part < 32; part += kBits) {
      const u32 x = a >> part << (32 - kBits), y = b >> part << (32 - kBits);
      sum += int64_t(T(x) >> (32 - kBits)) * (T(y) >> (32 - kBits));
    }
    const int64_t least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
    if (in.clamp) sum = sum < least ? least : sum > most ? most : sum;
    result.lane[lane] = u32(sum);
  });
  finish<u32>(w, in, &result);
}

// Dot product of two pairs of 16-bit floats: two products, exact in f32 but for extremes, and two
// f32 additions. kLast: S2 is added last. Rounds to nearest regardless of MODE, and keeps
// denormals.
template <Format F, bool kLast>
void dot_float(Wave& w, const Instruction& in) {
  Row sources[2][2], scratch, result;
  const u32* rows[2][2];
  for (int n = 0; n < 2; ++n)
    for (int high = 0; high < 2; ++high)
      rows[n][high] = packed_row(w, in, n, high, As::b16, sources[n][high]);
  const u32* const addend = source_row(w, in, 2, 0, As::b32, scratch);
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto product = [&](int high) {
      return widen<F>(rows[0][high][lane]) * widen<F>(rows[1][high][lane]);
    };
    const float c = as_float(addend[lane]);
    const float sum = kLast ? product(0) + product(1) + c : c + product(0) + product(1);
    result.lane[lane] = sum == sum ? as_bits(sum) : 0x7fc00000u;
  }
  finish<float>(w, in, &result);
}

template <Format F>
void dot_accumulate(Wave& w, const Instruction& in) {
  dot_float<F, false>(w, both_halves(in));
}

}  // namespace

void add_packed(Semantics& all, Arch arch) {
  all["v_pk_add_f32"] = packed_f32<2>([](float a, float b) { return a + b; });
  all["v_pk_mul_f32"] = packed_f32<2>([](float a, float b) { return a * b; });
  all["v_pk_fma_f32"] = packed_f32<3>([](float a, float b, float c) { return std::fma(a, b, c); });
  all["v_pk_mov_b32"] = move_two;
  add_16(all);
  for (const char* c : {"", "c"}) {
    const std::string dot(c);
    all["v_dot2" + dot + "_i32_i16"] = dot_integer<i32, 16>;
    all["v_dot4" + dot + "_i32_i8"] = dot_integer<i32, 8>;
    all["v_dot8" + dot + "_i32_i4"] = dot_integer<i32, 4>;
  }
  all["v_dot2_u32_u16"] = dot_integer<u32, 16>;
  all["v_dot4_u32_u8"] = dot_integer<u32, 8>;
  all["v_dot8_u32_u4"] = dot_integer<u32, 4>;
  all["v_dot2_f32_f16"] = dot_float<kF16, false>;
  all["v_dot2c_f32_f16"] = dot_accumulate<kF16>;
  if (arch != Arch::gfx950) return;
  all["v_dot2_f32_bf16"] = dot_float<kBf16, true>;
  all["v_dot2c_f32_bf16"] = dot_accumulate<kBf16>;
}

}  // namespace hk::emulator::HK_ISA
