// Reads sources and writes results of vector instructions as rows of 64 lanes. Reading applies what
// the encoding asks for (abs, neg, op_sel, SDWA, DPP, flushed denormals); so does writing (EXEC,
// clamp, omod). A handler is then one lambda over one lane:
//
//   all["v_add_u32"] = integer<uint32_t>([](auto a, auto b) { return a + b; });
//   all["v_add_f32"] = arithmetic([](float a, float b) { return a + b; });
//
// Plain VGPRs are read in place, results are blended by EXEC: no lane loop branches.
#pragma once

#include <cfenv>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "semantics/floats.hpp"
#include "machine/wave.hpp"

namespace hk::emulator::HK_ISA {

// Type of a source's bits: modifiers act on its sign bit, flushing on its denormals.
enum class As : uint8_t { b16, b32, f16, f32, f64, b64 };

struct alignas(64) Row {
  uint32_t lane[kLanes];
};

enum class Half : uint16_t {};  // the bits of an f16

inline uint32_t* register_row(Wave& w, const Operand& o, int dword = 0) {
  return w.vgpr[o.index + dword + (o.kind == Kind::agpr ? 256 : 0)];
}

// Whether MODE flushes denormals of a type; f64 and f16 share their bits.
inline bool flushes_input(uint32_t mode, As as) {
  return as == As::f32 ? !(mode & 0x10) : as == As::f16 || as == As::f64 ? !(mode & 0x40) : false;
}
inline bool flushes_output(uint32_t mode, As as) {
  return as == As::f32 ? !(mode & 0x20) : as == As::f16 || as == As::f64 ? !(mode & 0x80) : false;
}
inline Rounding rounding_of(uint32_t mode, As as) {
  return Rounding(as == As::f32 ? mode & 3 : mode >> 2 & 3);
}
inline bool ieee(uint32_t mode) { return mode >> 9 & 1; }
// FP16_OVFL: whether f16 and fp8 results that overflow become the largest number.
inline bool fp16_overflow(uint32_t mode) { return mode >> 23 & 1; }

// The general case of source_row: builds the row in `scratch`. 16-bit values come zero-extended.
const uint32_t* build_row(Wave&, const Instruction&, int n, int dword, As, Row& scratch);

// Returns the lane values of dword `dword` of source n.
inline const uint32_t* source_row(Wave& w, const Instruction& in, int n, int dword, As as,
                                  Row& scratch) {
  const Operand& o = in.src[n];
  const bool plain = o.kind == Kind::vgpr && !in.dpp && !in.sdwa && !o.negate && !o.absolute &&
                     !flushes_input(w.mode, as) && as != As::b16 && as != As::f16;
  return plain ? w.vgpr[o.index + dword] : build_row(w, in, n, dword, as, scratch);
}

// Returns one half of a packed (VOP3P) source, by op_sel or op_sel_hi and neg_lo or neg_hi.
const uint32_t* packed_row(Wave&, const Instruction&, int n, bool high, As, Row& scratch);

// Lanes that an instruction writes: EXEC, without those that DPP's masks and bounds exclude.
uint64_t dpp_lanes(const Wave&, const Instruction&);
inline uint64_t written_lanes(const Wave& w, const Instruction& in) {
  return in.dpp ? dpp_lanes(w, in) : w.exec();
}

void blend(uint32_t* destination, const uint32_t* result, uint64_t lanes);

// Writes results to register dst[0] + dword, through SDWA's dst_sel and EXEC.
void write_row(Wave&, const Instruction&, int dword, const Row& result);
// Writes 16-bit results. op_sel bit 3 chooses the upper half and keeps the lower one. Otherwise the
// upper half is cleared, on which compilers rely (LLVM's zeroesHigh16BitsOfDest on GFX9).
void write_half(Wave&, const Instruction&, Row& result);
// Writes a lane mask to an SGPR pair; inactive lanes become 0.
void write_mask(Wave&, const Instruction&, const Operand&, uint64_t mask);

// Apply omod, flushed denormals and clamp to a float result; f64 has two rows.
void modify_f32(const Wave&, const Instruction&, Row& result);
void modify_f64(const Wave&, const Instruction&, Row* result);
// Rounds f32 values (exact or rounded to odd) to f16 bits, and applies the same modifiers.
void round_f16(const Wave&, const Instruction&, Row& result, Rounding);
// Gives f32 results that are NaN the payload of the first NaN source, or else 0x7fc00000, on every
// host (f64: the payload is dropped).
void settle_nans(Row& result, const uint32_t* const* sources, int count);

// Lets the host round in MODE's way while it lives; fences keep operations inside.
class HostRounding {
 public:
  explicit HostRounding(Rounding rounding) : changed_(rounding != Rounding::nearest_even) {
    if (changed_) enter(rounding);
  }
  ~HostRounding() {
    if (changed_) leave();
  }
  HostRounding(const HostRounding&) = delete;

 private:
  static void enter(Rounding);
  static void leave();
  bool changed_;
};

// ---- one lane's function to a handler ----

template <class F>
struct Signature : Signature<decltype(&F::operator())> {};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) const> {
  using Result = R;
  using Arguments = std::tuple<A...>;
  static constexpr size_t arity = sizeof...(A);
};

// Reads lane values of type T from the rows of a source.
template <class T>
struct Source {
  static constexpr bool wide = sizeof(T) == 8;
  static constexpr As as = std::is_same_v<T, float>    ? As::f32
                           : std::is_same_v<T, double> ? As::f64
                           : std::is_same_v<T, Half>   ? As::f16
                           : wide                      ? As::b64
                           : sizeof(T) == 2            ? As::b16
                                                       : As::b32;
  const uint32_t *low, *high;

  Source(Wave& w, const Instruction& in, int n, Row* scratch)
      : low(source_row(w, in, n, 0, as, scratch[0])),
        high(wide ? source_row(w, in, n, 1, as, scratch[1]) : nullptr) {}
  T operator[](int lane) const {
    if constexpr (wide)
      return std::bit_cast<T>(low[lane] | uint64_t(high[lane]) << 32);
    else if constexpr (sizeof(T) == 2)
      return T(low[lane]);
    else
      return std::bit_cast<T>(low[lane]);
  }
};

template <class R>
inline void store_lane(Row* rows, int lane, R value) {
  if constexpr (sizeof(R) == 8) {
    const uint64_t bits = std::bit_cast<uint64_t>(value);
    rows[0].lane[lane] = uint32_t(bits);
    rows[1].lane[lane] = uint32_t(bits >> 32);
  } else if constexpr (std::is_same_v<R, bool>) {
    rows[0].lane[lane] = value;
  } else if constexpr (sizeof(R) == 2) {
    rows[0].lane[lane] = uint16_t(value);
  } else {
    rows[0].lane[lane] = std::bit_cast<uint32_t>(value);
  }
}

template <class R>
inline void finish(Wave& w, const Instruction& in, Row* rows) {
  if constexpr (std::is_same_v<R, float>) modify_f32(w, in, rows[0]);
  if constexpr (std::is_same_v<R, double>) modify_f64(w, in, rows);
  if constexpr (sizeof(R) == 2) {
    write_half(w, in, rows[0]);
  } else {
    if constexpr (sizeof(R) == 8) write_row(w, in, 1, rows[1]);
    write_row(w, in, 0, rows[0]);
  }
}

// Calls body(lane, a, b, ...) for every lane, with the sources as types A.
template <class... A, class Body>
inline void for_lanes(Wave& w, const Instruction& in, Body body) {
  Row scratch[sizeof...(A)][2];
  [&]<size_t... I>(std::index_sequence<I...>) {
    const std::tuple<Source<A>...> sources{Source<A>(w, in, int(I), scratch[I])...};
    for (int lane = 0; lane < kLanes; ++lane) body(lane, std::get<I>(sources)[lane]...);
  }(std::index_sequence_for<A...>{});
}

// Handlers of a function F of one lane. The types of its lambda choose how sources are read.

// Handler of any function whose result does not depend on the rounding mode.
template <class F>
Execute plain(F) {
  return [](Wave& w, const Instruction& in) {
    using R = typename Signature<F>::Result;
    Row result[sizeof(R) == 8 ? 2 : 1];
    [&]<class... A>(std::tuple<A...>*) {
      for_lanes<A...>(w, in, [&](int lane, A... a) { store_lane<R>(result, lane, F{}(a...)); });
    }(static_cast<typename Signature<F>::Arguments*>(nullptr));
    finish<R>(w, in, result);
  };
}

// Handler of integer arithmetic on kArity values of T by a generic F. Results are modulo, or, if
// the instruction clamps, exact in 64 bits and then saturated.
template <class T, int kArity = 2, class F>
Execute integer(F) {
  return [](Wave& w, const Instruction& in) {
    Row result;
    const auto run = [&](auto f) {
      const auto body = [&](int lane, auto... a) { store_lane<T>(&result, lane, f(a...)); };
      if constexpr (kArity == 2)
        for_lanes<T, T>(w, in, body);
      else
        for_lanes<T, T, T>(w, in, body);
    };
    using U = std::make_unsigned_t<decltype(T() + T())>;  // unsigned, so that overflow is defined
    if (!in.clamp) {
      run([](auto... a) { return T(F{}(U(a)...)); });
    } else {
      run([](auto... a) {
        const int64_t exact = F{}(int64_t(a)...);
        const int64_t least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
        return T(exact < least ? least : exact > most ? most : exact);
      });
    }
    finish<T>(w, in, &result);
  };
}

// Handler of f32 and f64 arithmetic, with MODE's rounding.
template <class F>
Execute arithmetic(F) {
  return [](Wave& w, const Instruction& in) {
    using S = Signature<F>;
    using R = typename S::Result;
    Row result[sizeof(R) / 4];
    {
      const HostRounding rounding(rounding_of(w.mode, Source<R>::as));
      [&]<class... A, size_t... I>(std::tuple<A...>*, std::index_sequence<I...>) {
        Row scratch[sizeof...(A)][2];
        const std::tuple<Source<A>...> sources{Source<A>(w, in, int(I), scratch[I])...};
        uint32_t nan = 0;
        for (int lane = 0; lane < kLanes; ++lane) {
          R value = F{}(std::get<I>(sources)[lane]...);
          nan |= uint32_t(value != value);
          if constexpr (sizeof(R) == 8) value = value == value ? value : R(NAN);
          store_lane<R>(result, lane, value);
        }
        if constexpr (std::is_same_v<R, float> && (std::is_same_v<A, float> && ...)) {
          if (nan) {
            const uint32_t* rows[] = {std::get<I>(sources).low...};
            settle_nans(result[0], rows, int(sizeof...(A)));
          }
        }
      }(static_cast<typename S::Arguments*>(nullptr), std::make_index_sequence<S::arity>{});
    }
    finish<R>(w, in, result);
  };
}

inline uint32_t quiet_nan(uint32_t bits) { return bits | 0x400000u; }

// Kinds of f16 operations with special results. sums: an exact sum of 0 is -0 if MODE rounds down,
// unless all its terms are +0. functions: NaN is the negative one (CDNA ISA guides, the examples of
// V_SQRT_F16, V_SIN_F16).
enum class Of : uint8_t { values, sums, functions };

// Handler of f16 arithmetic with MODE's rounding. F takes f32 or f64 values of the sources (or
// integers, from their low 16 bits) and returns the exact result, or one rounded to odd.
template <Of kOf = Of::values, class F>
Execute half(F) {
  return [](Wave& w, const Instruction& in) {
    using S = Signature<F>;
    constexpr uint32_t kNan = kOf == Of::functions ? 0xffc00000u : 0x7fc00000u;
    const Rounding rounding = rounding_of(w.mode, As::f16);
    Row result;
    [&]<class... A, size_t... I>(std::tuple<A...>*, std::index_sequence<I...>) {
      const auto number = []<class T>(T bits) {
        if constexpr (std::is_same_v<T, Half>)
          return widen<kF16>(uint32_t(bits));
        else
          return bits;
      };
      const auto compute = [](auto... a) {
        if constexpr (std::is_same_v<typename S::Result, double>)
          return to_odd(F{}(A(a)...));
        else
          return F{}(A(a)...);
      };
      const auto each_lane = [&](auto&& body) {
        for_lanes<std::conditional_t<std::is_floating_point_v<A>, Half, A>...>(
            w, in, [&](int lane, auto... bits) { body(result.lane[lane], number(bits)...); });
      };
      each_lane([&](uint32_t& lane, auto... values) {
        const float value = compute(values...);
        uint32_t nan = kNan;
        const auto settle = [&](auto a) {
          if constexpr (std::is_same_v<decltype(a), float>)
            nan = a != a && nan == kNan ? quiet_nan(as_bits(a)) : nan;
        };
        (settle(values), ...);
        lane = value == value ? as_bits(value) : nan;
      });
      if (kOf == Of::sums && rounding == Rounding::down) {
        const HostRounding down(rounding);
        each_lane([&](uint32_t& lane, auto... values) {
          if (lane == 0) lane = as_bits(compute(values...));
        });
      }
    }(static_cast<typename S::Arguments*>(nullptr), std::make_index_sequence<S::arity>{});
    round_f16(w, in, result, rounding);
    write_half(w, in, result);
  };
}

}  // namespace hk::emulator::HK_ISA
