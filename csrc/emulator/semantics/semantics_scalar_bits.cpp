// SALU: logic, shifts, bit fields, bit counts and moves.
#include "semantics/scalar.hpp"

namespace hk::emulator::scalar {
namespace {

template <class T>
T reversed(T bits) {
  T result = 0;
  for (int i = 0; i < int(8 * sizeof(T)); ++i) result = T(result << 1 | (bits >> i & 1));
  return result;
}

// Groups of four bits with any bit set; `spread`: sets the whole group, otherwise one bit per
// group.
template <class T>
T quads(T bits, bool spread) {
  T result = 0;
  for (int i = 0; i < int(2 * sizeof(T)); ++i)
    if (bits >> (4 * i) & 15) result |= spread ? T(15) << (4 * i) : T(1) << i;
  return result;
}

// Position of the first bit that differs from the sign bit, counted from it; -1: none differs.
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

template <class T, bool kOne>
void test_bit(Wave& w, const Instruction& in) {
  const uint32_t bit = read<uint32_t>(w, in.src[1]) & (8 * sizeof(T) - 1);
  w.scc = (read<T>(w, in.src[0]) >> bit & 1) == T(kOne);
}

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

}  // namespace

void add_bits(Semantics& all) {
  add_logic(all);
  add_counts(all);
  all["s_bitcmp0_b32"] = test_bit<u32, false>;
  all["s_bitcmp1_b32"] = test_bit<u32, true>;
  all["s_bitcmp0_b64"] = test_bit<u64, false>;
  all["s_bitcmp1_b64"] = test_bit<u64, true>;
}

}  // namespace hk::emulator::scalar
