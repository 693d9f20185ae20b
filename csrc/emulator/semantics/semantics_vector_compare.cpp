// v_cmp and v_cmpx: they write a mask of lanes to dst[0], v_cmpx also to EXEC.
#include "semantics/lanes.hpp"

namespace hk::emulator::HK_ISA {
namespace {

// Gathers 64 bytes of 0 or 1 into 64 bits.
uint64_t gather_bits(const uint8_t* bytes) {
  uint64_t mask = 0;
  for (int i = 0; i < 8; ++i) {
    uint64_t eight = 0;
    for (int j = 0; j < 8; ++j) eight |= uint64_t(bytes[8 * i + j]) << (8 * j);
    mask |= (eight * 0x0102040810204080ull >> 56) << (8 * i);
  }
  return mask;
}

template <class T>
auto value_of(T source) {
  if constexpr (std::is_same_v<T, Half>)
    return widen<kF16>(uint32_t(source));
  else
    return source;
}

// Handler of a comparison: F returns whether a lane's bit is set. kExec: v_cmpx.
template <bool kExec, class... A, class F>
Execute comparing(F) {
  return [](Wave& w, const Instruction& in) {
    alignas(64) uint8_t bytes[kLanes];
    for_lanes<A...>(w, in, [&](int lane, A... a) { bytes[lane] = F{}(value_of(a)...); });
    const uint64_t mask = gather_bits(bytes) & written_lanes(w, in);
    w.set_pair(in.dst[0].index, mask);
    if (kExec) w.set_pair(kSgprExec, mask);
  };
}

template <class T, class F>
void add(Semantics& all, const std::string& name, const std::string& type, F f) {
  all["v_cmp_" + name + type] = comparing<false, T, T>(f);
  all["v_cmpx_" + name + type] = comparing<true, T, T>(f);
}

template <class T>
void add_floats(Semantics& all, const std::string& type) {
  add<T>(all, "f", type, [](auto, auto) { return false; });
  add<T>(all, "lt", type, [](auto a, auto b) { return a < b; });
  add<T>(all, "eq", type, [](auto a, auto b) { return a == b; });
  add<T>(all, "le", type, [](auto a, auto b) { return a <= b; });
  add<T>(all, "gt", type, [](auto a, auto b) { return a > b; });
  add<T>(all, "lg", type, [](auto a, auto b) { return a < b || a > b; });
  add<T>(all, "ge", type, [](auto a, auto b) { return a >= b; });
  add<T>(all, "o", type, [](auto a, auto b) { return a == a && b == b; });
  add<T>(all, "u", type, [](auto a, auto b) { return a != a || b != b; });
  add<T>(all, "nge", type, [](auto a, auto b) { return !(a >= b); });
  add<T>(all, "nlg", type, [](auto a, auto b) { return !(a < b || a > b); });
  add<T>(all, "ngt", type, [](auto a, auto b) { return !(a > b); });
  add<T>(all, "nle", type, [](auto a, auto b) { return !(a <= b); });
  add<T>(all, "neq", type, [](auto a, auto b) { return !(a == b); });
  add<T>(all, "nlt", type, [](auto a, auto b) { return !(a < b); });
  add<T>(all, "tru", type, [](auto, auto) { return true; });
}

template <class T>
void add_integers(Semantics& all, const std::string& type) {
  add<T>(all, "f", type, [](T, T) { return false; });
  add<T>(all, "lt", type, [](T a, T b) { return a < b; });
  add<T>(all, "eq", type, [](T a, T b) { return a == b; });
  add<T>(all, "le", type, [](T a, T b) { return a <= b; });
  add<T>(all, "gt", type, [](T a, T b) { return a > b; });
  add<T>(all, "ne", type, [](T a, T b) { return a != b; });
  add<T>(all, "ge", type, [](T a, T b) { return a >= b; });
  add<T>(all, "t", type, [](T, T) { return true; });
}

// v_cmp_class: the bit of S1 for S0's class: signalling NaN, quiet NaN, -infinity, -normal,
// -denormal, -0, +0, +denormal, +normal, +infinity.
template <int kExponent, int kMantissa>
bool in_class(uint64_t bits, uint32_t classes) {
  const uint64_t mantissa = bits & ((1ull << kMantissa) - 1);
  const uint64_t exponent = bits >> kMantissa & ((1ull << kExponent) - 1);
  const bool negative = bits >> (kExponent + kMantissa) & 1;
  const bool top = exponent == (1ull << kExponent) - 1;
  int which = exponent ? 8 : mantissa ? 7 : 6;
  if (top) which = 9;
  if (negative) which = 11 - which;
  if (top && mantissa) which = mantissa >> (kMantissa - 1);
  return classes >> which & 1;
}

template <class T, int kExponent, int kMantissa>
void add_class(Semantics& all, const std::string& type) {
  const auto f = [](T a, uint32_t b) { return in_class<kExponent, kMantissa>(a, b); };
  all["v_cmp_class" + type] = comparing<false, T, uint32_t>(f);
  all["v_cmpx_class" + type] = comparing<true, T, uint32_t>(f);
}

}  // namespace

void add_compare(Semantics& all, Arch) {
  add_floats<Half>(all, "_f16");
  add_floats<float>(all, "_f32");
  add_floats<double>(all, "_f64");
  add_integers<int16_t>(all, "_i16");
  add_integers<uint16_t>(all, "_u16");
  add_integers<int32_t>(all, "_i32");
  add_integers<uint32_t>(all, "_u32");
  add_integers<int64_t>(all, "_i64");
  add_integers<uint64_t>(all, "_u64");
  // sources are read as bits, so that MODE does not flush denormals before they are classified
  add_class<uint16_t, 5, 10>(all, "_f16");
  add_class<uint32_t, 8, 23>(all, "_f32");
  add_class<uint64_t, 11, 52>(all, "_f64");
}

}  // namespace hk::emulator::HK_ISA
