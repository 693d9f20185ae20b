// SALU: SOP1, SOP2, SOPK and SOPC (CDNA3 ISA guide, "Scalar ALU Operations"), but for what changes
// the program counter.
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "semantics/semantics.hpp"
#include "machine/wave.hpp"

namespace hk::emulator {
namespace {

template <class T>
T read(const Wave& w, const Operand& o) {
  uint64_t value = 0;
  switch (o.kind) {
    case Kind::sgpr: value = sizeof(T) == 8 ? w.pair(o.index) : w.sgpr[o.index]; break;
    case Kind::constant: value = o.value; break;
    case Kind::scc: value = w.scc; break;
    case Kind::vccz: value = w.vcc() == 0; break;
    case Kind::execz: value = w.exec() == 0; break;
    default: throw Unsupported("a scalar instruction with a source that is not scalar");
  }
  return T(value);
}

template <class T>
void write(Wave& w, const Operand& o, T value) {
  if constexpr (sizeof(T) == 8)
    w.set_pair(o.index, uint64_t(value));
  else
    w.sgpr[o.index] = uint32_t(value);
}

template <class F>
struct Signature : Signature<decltype(&F::operator())> {};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) const> {
  using Arguments = std::tuple<A...>;
};

// Handlers from functions of the sources, whose types say how the operands are read.

template <class F, class... A, size_t... I>
auto apply(const Wave& w, const Instruction& in, std::tuple<A...>*, std::index_sequence<I...>) {
  return F{}(read<A>(w, in.src[I])...);
}
template <class F>
auto apply(const Wave& w, const Instruction& in) {
  using A = typename Signature<F>::Arguments;
  return apply<F>(w, in, static_cast<A*>(nullptr),
                  std::make_index_sequence<std::tuple_size_v<A>>{});
}

// D = F(S...), SCC untouched.
template <class F>
Execute value(F) {
  return [](Wave& w, const Instruction& in) { write(w, in.dst[0], apply<F>(w, in)); };
}

// D = F(S...), SCC = D != 0.
template <class F>
Execute nonzero(F) {
  return [](Wave& w, const Instruction& in) {
    const auto result = apply<F>(w, in);
    write(w, in.dst[0], result);
    w.scc = result != 0;
  };
}

// D = F(a, b, scc), which sets scc.
template <class T, class F>
Execute with_scc(F) {
  return [](Wave& w, const Instruction& in) {
    bool scc = w.scc;
    const T result = F{}(read<T>(w, in.src[0]), read<T>(w, in.src[1]), scc);
    write(w, in.dst[0], result);
    w.scc = scc;
  };
}

// SCC = F(a, b); the second form with SIMM16.
template <class T, class F>
Execute compare(F) {
  return [](Wave& w, const Instruction& in) {
    w.scc = F{}(read<T>(w, in.src[0]), read<T>(w, in.src[1]));
  };
}
template <class T, class F>
Execute compare_immediate(F) {
  return [](Wave& w, const Instruction& in) {
    const T immediate = std::is_signed_v<T> ? T(int16_t(in.simm)) : T(uint16_t(in.simm));
    w.scc = F{}(read<T>(w, in.src[0]), immediate);
  };
}

// EXEC = F(S, EXEC), SCC = EXEC != 0; D = EXEC before (saveexec) or after (wrexec).
template <bool kSave, class F>
Execute mask_exec(F) {
  return [](Wave& w, const Instruction& in) {
    const uint64_t source = read<uint64_t>(w, in.src[0]), before = w.exec();
    const uint64_t after = F{}(source, before);
    w.set_pair(in.dst[0].index, kSave ? before : after);
    w.set_pair(kSgprExec, after);
    w.scc = after != 0;
  };
}

template <class T>
T reversed(T bits) {
  T result = 0;
  for (int i = 0; i < int(8 * sizeof(T)); ++i) result = T(result << 1 | (bits >> i & 1));
  return result;
}

// Bits whose group of four has any bit set; `spread`: the whole group, else one bit per group.
template <class T>
T quads(T bits, bool spread) {
  T result = 0;
  for (int i = 0; i < int(2 * sizeof(T)); ++i)
    if (bits >> (4 * i) & 15) result |= spread ? T(15) << (4 * i) : T(1) << i;
  return result;
}

// The first bit that differs from the sign, counted from it; -1 if none does.
template <class U>
int32_t sign_run(U bits) {
  const U differs = U(bits ^ (bits >> (8 * sizeof(U) - 1) ? ~U(0) : U(0)));
  return differs ? std::countl_zero(differs) : -1;
}

template <class T>
T extract(T value, uint32_t control) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  const uint32_t offset = control & (kBits - 1), width = control >> 16 & 127;
  if (width == 0) return 0;
  const T shifted = value >> offset;
  if (width >= kBits) return shifted;
  return T(T(std::make_unsigned_t<T>(shifted) << (kBits - width)) >> (kBits - width));
}

// s_getreg_b32, s_setreg_*: only MODE is kept in a wave.
struct HardwareRegister {
  int id, offset, size;
  explicit HardwareRegister(const Instruction& in)
      : id(in.simm & 63), offset(in.simm >> 6 & 31), size((in.simm >> 11 & 31) + 1) {
    if (id != 1)
      throw Unsupported("hardware register " + std::to_string(id) + ": only MODE (1) is emulated");
  }
  uint32_t mask() const { return (size == 32 ? ~0u : (1u << size) - 1) << offset; }
};

void get_register(Wave& w, const Instruction& in) {
  const HardwareRegister field(in);
  write(w, in.dst[0], (w.mode & field.mask()) >> field.offset);
}
void set_register(Wave& w, const Instruction& in) {
  const HardwareRegister field(in);
  const uint32_t value = read<uint32_t>(w, in.src[0]) << field.offset;
  w.mode = (w.mode & ~field.mask()) | (value & field.mask());
}

template <class T>
void conditional_move(Wave& w, const Instruction& in) {
  if (w.scc) write(w, in.dst[0], read<T>(w, in.src[0]));
}
template <class T>
void select(Wave& w, const Instruction& in) {
  write(w, in.dst[0], read<T>(w, in.src[w.scc ? 0 : 1]));
}
template <class T, bool kSet>
void set_bit(Wave& w, const Instruction& in) {
  const T bit = T(1) << (read<uint32_t>(w, in.src[0]) & (8 * sizeof(T) - 1));
  const T old = read<T>(w, in.dst[0]);
  write(w, in.dst[0], T(kSet ? old | bit : old & ~bit));
}

using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;

void add_logic(Semantics& all) {
  const auto both = [&](const std::string& name, Execute b32, Execute b64) {
    all["s_" + name + "_b32"] = b32;
    all["s_" + name + "_b64"] = b64;
  };
  both("and", nonzero([](u32 a, u32 b) { return a & b; }),
       nonzero([](u64 a, u64 b) { return a & b; }));
  both("or", nonzero([](u32 a, u32 b) { return a | b; }),
       nonzero([](u64 a, u64 b) { return a | b; }));
  both("xor", nonzero([](u32 a, u32 b) { return a ^ b; }),
       nonzero([](u64 a, u64 b) { return a ^ b; }));
  both("andn2", nonzero([](u32 a, u32 b) { return a & ~b; }),
       nonzero([](u64 a, u64 b) { return a & ~b; }));
  both("orn2", nonzero([](u32 a, u32 b) { return a | ~b; }),
       nonzero([](u64 a, u64 b) { return a | ~b; }));
  both("nand", nonzero([](u32 a, u32 b) { return ~(a & b); }),
       nonzero([](u64 a, u64 b) { return ~(a & b); }));
  both("nor", nonzero([](u32 a, u32 b) { return ~(a | b); }),
       nonzero([](u64 a, u64 b) { return ~(a | b); }));
  both("xnor", nonzero([](u32 a, u32 b) { return ~(a ^ b); }),
       nonzero([](u64 a, u64 b) { return ~(a ^ b); }));
  both("lshl", nonzero([](u32 a, u32 b) { return a << (b & 31); }),
       nonzero([](u64 a, u32 b) { return a << (b & 63); }));
  both("lshr", nonzero([](u32 a, u32 b) { return a >> (b & 31); }),
       nonzero([](u64 a, u32 b) { return a >> (b & 63); }));
  all["s_ashr_i32"] = nonzero([](i32 a, u32 b) { return a >> (b & 31); });
  all["s_ashr_i64"] = nonzero([](i64 a, u32 b) { return a >> (b & 63); });
  both("not", nonzero([](u32 a) { return ~a; }), nonzero([](u64 a) { return ~a; }));
  both("wqm", nonzero([](u32 a) { return quads(a, true); }),
       nonzero([](u64 a) { return quads(a, true); }));
  both("quadmask", nonzero([](u32 a) { return quads(a, false); }),
       nonzero([](u64 a) { return quads(a, false); }));
  both("brev", value([](u32 a) { return reversed(a); }), value([](u64 a) { return reversed(a); }));
  both("mov", value([](u32 a) { return a; }), value([](u64 a) { return a; }));
  both("cmov", conditional_move<u32>, conditional_move<u64>);
  both("cselect", select<u32>, select<u64>);
  both("bitset0", set_bit<u32, false>, set_bit<u64, false>);
  both("bitset1", set_bit<u32, true>, set_bit<u64, true>);
  both("bfm", value([](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); }),
       value([](u32 a, u32 b) { return ((1ull << (a & 63)) - 1) << (b & 63); }));
  all["s_bfe_u32"] = nonzero([](u32 a, u32 b) { return extract(a, b); });
  all["s_bfe_i32"] = nonzero([](i32 a, u32 b) { return extract(a, b); });
  all["s_bfe_u64"] = nonzero([](u64 a, u32 b) { return extract(a, b); });
  all["s_bfe_i64"] = nonzero([](i64 a, u32 b) { return extract(a, b); });
  all["s_pack_ll_b32_b16"] = value([](u32 a, u32 b) { return (a & 0xffff) | b << 16; });
  all["s_pack_lh_b32_b16"] = value([](u32 a, u32 b) { return (a & 0xffff) | (b & 0xffff0000); });
  all["s_pack_hh_b32_b16"] = value([](u32 a, u32 b) { return a >> 16 | (b & 0xffff0000); });
  all["s_bitreplicate_b64_b32"] = value([](u32 a) {
    u64 result = 0;
    for (int i = 0; i < 32; ++i) result |= u64(a >> i & 1) * 3 << (2 * i);
    return result;
  });
}

void add_counts(Semantics& all) {
  all["s_bcnt0_i32_b32"] = nonzero([](u32 a) { return i32(std::popcount(~a)); });
  all["s_bcnt0_i32_b64"] = nonzero([](u64 a) { return i32(std::popcount(~a)); });
  all["s_bcnt1_i32_b32"] = nonzero([](u32 a) { return i32(std::popcount(a)); });
  all["s_bcnt1_i32_b64"] = nonzero([](u64 a) { return i32(std::popcount(a)); });
  all["s_ff0_i32_b32"] = value([](u32 a) { return ~a ? std::countr_one(a) : -1; });
  all["s_ff0_i32_b64"] = value([](u64 a) { return ~a ? std::countr_one(a) : -1; });
  all["s_ff1_i32_b32"] = value([](u32 a) { return a ? std::countr_zero(a) : -1; });
  all["s_ff1_i32_b64"] = value([](u64 a) { return a ? std::countr_zero(a) : -1; });
  all["s_flbit_i32_b32"] = value([](u32 a) { return a ? std::countl_zero(a) : -1; });
  all["s_flbit_i32_b64"] = value([](u64 a) { return a ? std::countl_zero(a) : -1; });
  all["s_flbit_i32"] = value([](u32 a) { return sign_run(a); });
  all["s_flbit_i32_i64"] = value([](u64 a) { return sign_run(a); });
  all["s_sext_i32_i8"] = value([](u32 a) { return i32(int8_t(a)); });
  all["s_sext_i32_i16"] = value([](u32 a) { return i32(int16_t(a)); });
  all["s_abs_i32"] = nonzero([](u32 a) { return i32(a) < 0 ? 0 - a : a; });
  all["s_absdiff_i32"] = nonzero([](u32 a, u32 b) { return i32(a - b) < 0 ? b - a : a - b; });
}

template <int kShift>
struct ShiftAdd {
  u32 operator()(u32 a, u32 b, bool& scc) const {
    const u64 exact = (u64(a) << kShift) + b;
    scc = exact >> 32;
    return u32(exact);
  }
};

void add_arithmetic(Semantics& all) {
  all["s_add_u32"] = with_scc<u32>(ShiftAdd<0>{});
  all["s_lshl1_add_u32"] = with_scc<u32>(ShiftAdd<1>{});
  all["s_lshl2_add_u32"] = with_scc<u32>(ShiftAdd<2>{});
  all["s_lshl3_add_u32"] = with_scc<u32>(ShiftAdd<3>{});
  all["s_lshl4_add_u32"] = with_scc<u32>(ShiftAdd<4>{});
  all["s_sub_u32"] = with_scc<u32>([](u32 a, u32 b, bool& scc) {
    scc = b > a;
    return a - b;
  });
  all["s_addc_u32"] = with_scc<u32>([](u32 a, u32 b, bool& scc) {
    const u64 exact = u64(a) + b + scc;
    scc = exact >> 32;
    return u32(exact);
  });
  all["s_subb_u32"] = with_scc<u32>([](u32 a, u32 b, bool& scc) {
    const u64 taken = u64(b) + scc;
    scc = taken > a;
    return u32(a - taken);
  });
  all["s_add_i32"] = with_scc<i32>([](i32 a, i32 b, bool& scc) {
    i32 result;
    scc = __builtin_add_overflow(a, b, &result);
    return result;
  });
  all["s_sub_i32"] = with_scc<i32>([](i32 a, i32 b, bool& scc) {
    i32 result;
    scc = __builtin_sub_overflow(a, b, &result);
    return result;
  });
  all["s_min_i32"] = with_scc<i32>([](i32 a, i32 b, bool& s) { return (s = a < b) ? a : b; });
  all["s_min_u32"] = with_scc<u32>([](u32 a, u32 b, bool& s) { return (s = a < b) ? a : b; });
  all["s_max_i32"] = with_scc<i32>([](i32 a, i32 b, bool& s) { return (s = a >= b) ? a : b; });
  all["s_max_u32"] = with_scc<u32>([](u32 a, u32 b, bool& s) { return (s = a >= b) ? a : b; });
  all["s_mul_i32"] = value([](u32 a, u32 b) { return a * b; });
  all["s_mul_hi_u32"] = value([](u32 a, u32 b) { return u32(u64(a) * b >> 32); });
  all["s_mul_hi_i32"] = value([](i32 a, i32 b) { return i32(i64(a) * b >> 32); });
  all["s_addk_i32"] = [](Wave& w, const Instruction& in) {
    i32 result;
    w.scc = __builtin_add_overflow(read<i32>(w, in.dst[0]), i32(int16_t(in.simm)), &result);
    write(w, in.dst[0], result);
  };
  all["s_mulk_i32"] = [](Wave& w, const Instruction& in) {
    write(w, in.dst[0], read<u32>(w, in.dst[0]) * u32(i32(int16_t(in.simm))));
  };
  all["s_movk_i32"] = [](Wave& w, const Instruction& in) {
    write(w, in.dst[0], i32(int16_t(in.simm)));
  };
  all["s_cmovk_i32"] = [](Wave& w, const Instruction& in) {
    if (w.scc) write(w, in.dst[0], i32(int16_t(in.simm)));
  };
}

template <class T>
void add_compares(Semantics& all, const std::string& type) {
  const auto both = [&](const char* name, Execute sopc, Execute sopk) {
    all[std::string("s_cmp_") + name + type] = sopc;
    all[std::string("s_cmpk_") + name + type] = sopk;
  };
  both("eq_", compare<T>([](T a, T b) { return a == b; }),
       compare_immediate<T>([](T a, T b) { return a == b; }));
  both("lg_", compare<T>([](T a, T b) { return a != b; }),
       compare_immediate<T>([](T a, T b) { return a != b; }));
  both("gt_", compare<T>([](T a, T b) { return a > b; }),
       compare_immediate<T>([](T a, T b) { return a > b; }));
  both("ge_", compare<T>([](T a, T b) { return a >= b; }),
       compare_immediate<T>([](T a, T b) { return a >= b; }));
  both("lt_", compare<T>([](T a, T b) { return a < b; }),
       compare_immediate<T>([](T a, T b) { return a < b; }));
  both("le_", compare<T>([](T a, T b) { return a <= b; }),
       compare_immediate<T>([](T a, T b) { return a <= b; }));
}

template <class T, bool kOne>
void test_bit(Wave& w, const Instruction& in) {
  const uint32_t bit = read<uint32_t>(w, in.src[1]) & (8 * sizeof(T) - 1);
  w.scc = (read<T>(w, in.src[0]) >> bit & 1) == T(kOne);
}

void add_exec(Semantics& all) {
  all["s_and_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return s & exec; });
  all["s_or_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return s | exec; });
  all["s_xor_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return s ^ exec; });
  all["s_andn2_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return s & ~exec; });
  all["s_orn2_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return s | ~exec; });
  all["s_nand_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return ~(s & exec); });
  all["s_nor_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return ~(s | exec); });
  all["s_xnor_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return ~(s ^ exec); });
  all["s_andn1_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return ~s & exec; });
  all["s_orn1_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return ~s | exec; });
  all["s_andn1_wrexec_b64"] = mask_exec<false>([](u64 s, u64 exec) { return ~s & exec; });
  all["s_andn2_wrexec_b64"] = mask_exec<false>([](u64 s, u64 exec) { return s & ~exec; });
}

// Of M0: VGPR indexing's offset [7:0] and the operands that it moves [15:12].
void set_m0(Wave& w, uint32_t mask, uint32_t value) {
  w.sgpr[kSgprM0] = (w.sgpr[kSgprM0] & ~mask) | (value & mask);
}

void add_vgpr_indexing(Semantics& all) {
  constexpr uint32_t kEnable = 1u << 27;  // MODE's GPR_IDX_EN
  all["s_set_gpr_idx_on"] = [](Wave& w, const Instruction& in) {
    w.mode |= kEnable;
    set_m0(w, 0xf0ff, (read<u32>(w, in.src[0]) & 0xff) | uint32_t(in.simm) << 12);
  };
  all["s_set_gpr_idx_off"] = [](Wave& w, const Instruction&) { w.mode &= ~kEnable; };
  all["s_set_gpr_idx_mode"] = [](Wave& w, const Instruction& in) {
    set_m0(w, 0xf000, uint32_t(in.simm) << 12);
  };
  all["s_set_gpr_idx_idx"] = [](Wave& w, const Instruction& in) {
    set_m0(w, 0xff, read<u32>(w, in.src[0]));
  };
}

}  // namespace

void add_scalar(Semantics& all) {
  add_logic(all);
  add_counts(all);
  add_arithmetic(all);
  add_compares<i32>(all, "i32");
  add_compares<u32>(all, "u32");
  all["s_cmp_eq_u64"] = compare<u64>([](u64 a, u64 b) { return a == b; });
  all["s_cmp_lg_u64"] = compare<u64>([](u64 a, u64 b) { return a != b; });
  all["s_bitcmp0_b32"] = test_bit<u32, false>;
  all["s_bitcmp1_b32"] = test_bit<u32, true>;
  all["s_bitcmp0_b64"] = test_bit<u64, false>;
  all["s_bitcmp1_b64"] = test_bit<u64, true>;
  add_exec(all);
  add_vgpr_indexing(all);
  all["s_getreg_b32"] = get_register;
  all["s_setreg_b32"] = set_register;
  all["s_setreg_imm32_b32"] = set_register;
}

}  // namespace hk::emulator
