// SALU: arithmetic and comparisons of SOP1, SOP2, SOPK and SOPC (CDNA3 ISA guide, "Scalar ALU
// Operations"). Bits and state have their own files; the machine changes the program counter.
#include "semantics/scalar.hpp"

namespace hk::emulator {
namespace scalar {
namespace {

// Handler of SCC = F(a, b), also with SIMM16 as b.
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

}  // namespace
}  // namespace scalar

void add_scalar(Semantics& all) {
  using namespace scalar;
  add_arithmetic(all);
  add_compares<i32>(all, "i32");
  add_compares<u32>(all, "u32");
  all["s_cmp_eq_u64"] = compare<u64>([](u64 a, u64 b) { return a == b; });
  all["s_cmp_lg_u64"] = compare<u64>([](u64 a, u64 b) { return a != b; });
  add_bits(all);
  add_state(all);
}

}  // namespace hk::emulator
