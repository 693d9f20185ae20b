// Reads sources, and writes results and SCC, of scalar instructions. A handler is then one lambda,
// whose argument types define how operands are read:
//
//   all["s_and_b32"] = nonzero([](u32 a, u32 b) { return a & b; });
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "semantics/semantics.hpp"
#include "machine/wave.hpp"

namespace hk::emulator::scalar {

using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;

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

// Handler of D = F(S...) that leaves SCC alone.
template <class F>
Execute value(F) {
  return [](Wave& w, const Instruction& in) { write(w, in.dst[0], apply<F>(w, in)); };
}

// Handler of D = F(S...), SCC = D != 0.
template <class F>
Execute nonzero(F) {
  return [](Wave& w, const Instruction& in) {
    const auto result = apply<F>(w, in);
    write(w, in.dst[0], result);
    w.scc = result != 0;
  };
}

// Handler of D = F(a, b, scc), where F sets scc.
template <class T, class F>
Execute with_scc(F) {
  return [](Wave& w, const Instruction& in) {
    bool scc = w.scc;
    const T result = F{}(read<T>(w, in.src[0]), read<T>(w, in.src[1]), scc);
    write(w, in.dst[0], result);
    w.scc = scc;
  };
}

void add_bits(Semantics& all);
void add_state(Semantics& all);

}  // namespace hk::emulator::scalar
