// VALU on integers and bits, of 16, 32 and 64 bits.
#include <algorithm>

#include "semantics/lanes.hpp"

namespace hk::emulator::HK_ISA {
namespace {

using u16 = uint16_t;
using i16 = int16_t;
using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;

int64_t low24(auto a) { return int64_t(uint32_t(a) & 0xffffffu); }
int64_t signed24(auto a) { return int32_t(uint32_t(a) << 8) >> 8; }

template <class T>
T middle(T a, T b, T c) {
  const T low = a < b ? a : b, high = a < b ? b : a;
  return c < low ? low : c > high ? high : c;
}

// Byte that a selector of v_perm_b32 chooses: 0 to 7 of {a, b}, the sign of byte 1, 3, 5 or 7, 0x00
// (12) or 0xff.
u32 permuted_byte(u64 data, u32 select) {
  const u32 byte = u32(data >> (8 * (select & 7))) & 255;
  const u32 sign = data >> (16 * (select & 3) + 15) & 1 ? 255 : 0;
  return select < 8 ? byte : select < 12 ? sign : select == 12 ? 0 : 255;
}

u32 permute(u32 a, u32 b, u32 select) {
  const u64 data = u64(a) << 32 | b;
  return permuted_byte(data, select & 255) | permuted_byte(data, select >> 8 & 255) << 8 |
         permuted_byte(data, select >> 16 & 255) << 16 | permuted_byte(data, select >> 24) << 24;
}

u32 reversed(u32 a) {
  a = (a >> 1 & 0x55555555u) | (a & 0x55555555u) << 1;
  a = (a >> 2 & 0x33333333u) | (a & 0x33333333u) << 2;
  a = (a >> 4 & 0x0f0f0f0fu) | (a & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(a);
}

u32 difference(u32 a, u32 b) { return a > b ? a - b : b - a; }
u32 bytes_difference(u32 a, u32 b) {
  u32 sum = 0;
  for (int i = 0; i < 32; i += 8) sum += difference(a >> i & 255, b >> i & 255);
  return sum;
}

// v_bitop3: each result bit is bit (4a + 2b + c) of a truth table, stored in the fields of neg, abs
// and omod.
template <class T>
void bit_operation(Wave& w, const Instruction& in) {
  const u32 table = u32(in.simm);
  Row result;
  for_lanes<T, T, T>(w, in, [&](int lane, T a, T b, T c) {
    u32 bits = 0;
    for (u32 i = 0; i < 8; ++i) {
      const u32 term = (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
      bits |= table >> i & 1 ? term : 0;
    }
    store_lane<T>(&result, lane, T(bits));
  });
  finish<T>(w, in, &result);
}

// Adds to each lane the number of a mask's bits for lower lanes. The mask covers lanes 0 to 31, or,
// with kHigh, lanes 32 to 63.
template <bool kHigh>
void mask_count(Wave& w, const Instruction& in) {
  Row result;
  for_lanes<u32, u32>(w, in, [&](int lane, u32 mask, u32 base) {
    const u64 below = (1ull << lane) - 1;
    store_lane<u32>(&result, lane,
                    base + u32(std::popcount(mask & u32(below >> (kHigh ? 32 : 0)))));
  });
  finish<u32>(w, in, &result);
}

// Handler of D = F(a, b, carry in) in 64 bits; bit 32 is the carry or borrow out, for dst[1].
template <bool kCarryIn, class F>
Execute carrying(F) {
  return [](Wave& w, const Instruction& in) {
    const u64 carry = kCarryIn ? w.pair(in.src[2].index) : 0;
    Row result;
    u64 out = 0;
    for_lanes<u32, u32>(w, in, [&](int lane, u32 a, u32 b) {
      const u64 exact = F{}(u64(a), u64(b), carry >> lane & 1);
      out |= (exact >> 32 & 1) << lane;
      // clamped: all ones for an addition that carries, zero for a subtraction that borrows
      const u32 limit = F{}(1, 0, 0) == F{}(0, 1, 0) ? ~0u : 0u;
      result.lane[lane] = in.clamp && exact >> 32 & 1 ? limit : u32(exact);
    });
    finish<u32>(w, in, &result);
    write_mask(w, in, in.dst[1], out);
  };
}

// Handler of {dst[1], D} = a * b + c.
template <class T, class Wide, class Exact>
void multiply_add_64(Wave& w, const Instruction& in) {
  Row result[2];
  u64 out = 0;
  for_lanes<T, T, Wide>(w, in, [&](int lane, T a, T b, Wide c) {
    const Exact exact = Exact(a) * b + c;
    out |= u64(exact >> 64 & 1) << lane;
    store_lane<Wide>(result, lane, Wide(exact));
  });
  finish<Wide>(w, in, result);
  write_mask(w, in, in.dst[1], out);
}

void add_arithmetic(Semantics& all) {
  all["v_add_u32"] = integer<u32>([](auto a, auto b) { return a + b; });
  all["v_sub_u32"] = integer<u32>([](auto a, auto b) { return a - b; });
  all["v_subrev_u32"] = integer<u32>([](auto a, auto b) { return b - a; });
  all["v_add_i32"] = integer<i32>([](auto a, auto b) { return a + b; });
  all["v_sub_i32"] = integer<i32>([](auto a, auto b) { return a - b; });
  all["v_add_u16"] = integer<u16>([](auto a, auto b) { return a + b; });
  all["v_sub_u16"] = integer<u16>([](auto a, auto b) { return a - b; });
  all["v_subrev_u16"] = integer<u16>([](auto a, auto b) { return b - a; });
  all["v_add_i16"] = integer<i16>([](auto a, auto b) { return a + b; });
  all["v_sub_i16"] = integer<i16>([](auto a, auto b) { return a - b; });
  all["v_mul_lo_u16"] = integer<u16>([](auto a, auto b) { return a * b; });
  all["v_mul_lo_u32"] = plain([](u32 a, u32 b) { return a * b; });
  all["v_mul_hi_u32"] = plain([](u32 a, u32 b) { return u32(u64(a) * b >> 32); });
  all["v_mul_hi_i32"] = plain([](i32 a, i32 b) { return i32(i64(a) * b >> 32); });
  all["v_mul_u32_u24"] = integer<u32>([](auto a, auto b) { return low24(a) * low24(b); });
  all["v_mul_i32_i24"] = integer<i32>([](auto a, auto b) { return signed24(a) * signed24(b); });
  all["v_mul_hi_u32_u24"] = plain([](u32 a, u32 b) { return u32(low24(a) * low24(b) >> 32); });
  all["v_mul_hi_i32_i24"] =
      plain([](u32 a, u32 b) { return i32(signed24(a) * signed24(b) >> 32); });
  all["v_mad_u32_u24"] =
      integer<u32, 3>([](auto a, auto b, auto c) { return low24(a) * low24(b) + c; });
  all["v_mad_i32_i24"] =
      integer<i32, 3>([](auto a, auto b, auto c) { return signed24(a) * signed24(b) + i32(c); });
  all["v_mad_u32_u16"] = plain([](u16 a, u16 b, u32 c) { return u32(a) * b + c; });
  all["v_mad_i32_i16"] = plain([](i16 a, i16 b, u32 c) { return u32(i32(a) * b) + c; });
  for (const char* name : {"v_mad_u16", "v_mad_legacy_u16"})
    all[name] = integer<u16, 3>([](auto a, auto b, auto c) { return a * b + c; });
  for (const char* name : {"v_mad_i16", "v_mad_legacy_i16"})
    all[name] = integer<i16, 3>([](auto a, auto b, auto c) { return a * b + c; });
  all["v_mad_u64_u32"] = multiply_add_64<u32, u64, unsigned __int128>;
  all["v_mad_i64_i32"] = multiply_add_64<i32, i64, __int128>;
  all["v_lshl_add_u64"] = plain([](u64 a, u32 b, u64 c) { return (a << (b & 7)) + c; });
  all["v_add3_u32"] = plain([](u32 a, u32 b, u32 c) { return a + b + c; });
  all["v_lshl_add_u32"] = plain([](u32 a, u32 b, u32 c) { return (a << (b & 31)) + c; });
  all["v_add_lshl_u32"] = plain([](u32 a, u32 b, u32 c) { return (a + b) << (c & 31); });
  all["v_xad_u32"] = plain([](u32 a, u32 b, u32 c) { return (a ^ b) + c; });
  all["v_sad_u8"] = plain([](u32 a, u32 b, u32 c) { return bytes_difference(a, b) + c; });
  all["v_sad_hi_u8"] =
      plain([](u32 a, u32 b, u32 c) { return (bytes_difference(a, b) << 16) + c; });
  all["v_sad_u16"] = plain([](u32 a, u32 b, u32 c) {
    return difference(a & 0xffff, b & 0xffff) + difference(a >> 16, b >> 16) + c;
  });
  all["v_sad_u32"] = plain([](u32 a, u32 b, u32 c) { return difference(a, b) + c; });
}

void add_carries(Semantics& all) {
  all["v_add_co_u32"] = carrying<false>([](u64 a, u64 b, u64) { return a + b; });
  all["v_sub_co_u32"] = carrying<false>([](u64 a, u64 b, u64) { return a - b; });
  all["v_subrev_co_u32"] = carrying<false>([](u64 a, u64 b, u64) { return b - a; });
  all["v_addc_co_u32"] = carrying<true>([](u64 a, u64 b, u64 c) { return a + b + c; });
  all["v_subb_co_u32"] = carrying<true>([](u64 a, u64 b, u64 c) { return a - b - c; });
  all["v_subbrev_co_u32"] = carrying<true>([](u64 a, u64 b, u64 c) { return b - a - c; });
}

template <class T>
void add_order(Semantics& all, const std::string& type) {
  all["v_min" + type] = plain([](T a, T b) { return a < b ? a : b; });
  all["v_max" + type] = plain([](T a, T b) { return a >= b ? a : b; });
  all["v_min3" + type] = plain([](T a, T b, T c) { return std::min(std::min(a, b), c); });
  all["v_max3" + type] = plain([](T a, T b, T c) { return std::max(std::max(a, b), c); });
  all["v_med3" + type] = plain([](T a, T b, T c) { return middle(a, b, c); });
}

void add_bits(Semantics& all) {
  all["v_and_b32"] = plain([](u32 a, u32 b) { return a & b; });
  all["v_or_b32"] = plain([](u32 a, u32 b) { return a | b; });
  all["v_xor_b32"] = plain([](u32 a, u32 b) { return a ^ b; });
  all["v_xnor_b32"] = plain([](u32 a, u32 b) { return ~(a ^ b); });
  all["v_not_b32"] = plain([](u32 a) { return ~a; });
  all["v_and_or_b32"] = plain([](u32 a, u32 b, u32 c) { return (a & b) | c; });
  all["v_or3_b32"] = plain([](u32 a, u32 b, u32 c) { return a | b | c; });
  all["v_lshl_or_b32"] = plain([](u32 a, u32 b, u32 c) { return a << (b & 31) | c; });
  all["v_bfi_b32"] = plain([](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); });
  all["v_bfe_u32"] =
      plain([](u32 a, u32 b, u32 c) { return a >> (b & 31) & ((1u << (c & 31)) - 1); });
  all["v_bfe_i32"] = plain([](i32 a, u32 b, u32 c) {
    const u32 width = c & 31, up = (32 - width) & 31;
    return width ? i32(u32(a >> (b & 31)) << up) >> up : 0;
  });
  all["v_bfm_b32"] = plain([](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); });
  all["v_lshlrev_b32"] = plain([](u32 a, u32 b) { return b << (a & 31); });
  all["v_lshrrev_b32"] = plain([](u32 a, u32 b) { return b >> (a & 31); });
  all["v_ashrrev_i32"] = plain([](u32 a, i32 b) { return b >> (a & 31); });
  all["v_lshlrev_b64"] = plain([](u32 a, u64 b) { return b << (a & 63); });
  all["v_lshrrev_b64"] = plain([](u32 a, u64 b) { return b >> (a & 63); });
  all["v_ashrrev_i64"] = plain([](u32 a, i64 b) { return b >> (a & 63); });
  all["v_lshlrev_b16"] = plain([](u16 a, u16 b) { return u16(b << (a & 15)); });
  all["v_lshrrev_b16"] = plain([](u16 a, u16 b) { return u16(b >> (a & 15)); });
  all["v_ashrrev_i16"] = plain([](u16 a, i16 b) { return i16(b >> (a & 15)); });
  all["v_alignbit_b32"] =
      plain([](u32 a, u32 b, u32 c) { return u32((u64(a) << 32 | b) >> (c & 31)); });
  all["v_alignbyte_b32"] =
      plain([](u32 a, u32 b, u32 c) { return u32((u64(a) << 32 | b) >> (8 * (c & 3))); });
  all["v_perm_b32"] = plain([](u32 a, u32 b, u32 c) { return permute(a, b, c); });
  all["v_bfrev_b32"] = plain([](u32 a) { return reversed(a); });
  all["v_bcnt_u32_b32"] = plain([](u32 a, u32 b) { return u32(std::popcount(a)) + b; });
  all["v_ffbh_u32"] = plain([](u32 a) { return a ? std::countl_zero(a) : -1; });
  all["v_ffbl_b32"] = plain([](u32 a) { return a ? std::countr_zero(a) : -1; });
  all["v_ffbh_i32"] = plain([](i32 a) {
    const u32 differs = u32(a ^ (a >> 31));
    return differs ? std::countl_zero(differs) : -1;
  });
  all["v_mbcnt_lo_u32_b32"] = mask_count<false>;
  all["v_mbcnt_hi_u32_b32"] = mask_count<true>;
  all["v_sat_pk_u8_i16"] = plain([](u32 a) {
    const auto byte = [](i32 v) { return u32(v < 0 ? 0 : v > 255 ? 255 : v); };
    return u16(byte(i16(a)) | byte(i32(a) >> 16) << 8);
  });
}

void add_gfx950(Semantics& all) {
  all["v_bitop3_b32"] = bit_operation<u32>;
  all["v_bitop3_b16"] = bit_operation<u16>;
  all["v_prng_b32"] = plain([](u32 a) { return a << 1 ^ (a >> 31 ? 197u : 0u); });
  all["v_ashr_pk_i8_i32"] = plain([](i32 a, i32 b, u32 c) {
    const auto byte = [](i32 v) { return u32(v < -128 ? -128 : v > 127 ? 127 : v) & 255; };
    return u16(byte(a >> (c & 31)) | byte(b >> (c & 31)) << 8);
  });
  all["v_ashr_pk_u8_i32"] = plain([](i32 a, i32 b, u32 c) {
    const auto byte = [](i32 v) { return u32(v < 0 ? 0 : v > 255 ? 255 : v); };
    return u16(byte(a >> (c & 31)) | byte(b >> (c & 31)) << 8);
  });
}

}  // namespace

void add_integer(Semantics& all, Arch arch) {
  add_arithmetic(all);
  add_carries(all);
  add_order<i32>(all, "_i32");
  add_order<u32>(all, "_u32");
  add_order<i16>(all, "_i16");
  add_order<u16>(all, "_u16");
  add_bits(all);
  if (arch == Arch::gfx950) add_gfx950(all);
}

}  // namespace hk::emulator::HK_ISA
