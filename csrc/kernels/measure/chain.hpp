// Runs of one instruction on registers: dependent, or on several results in turn.
#pragma once

#include "run.hpp"

namespace hk::measure {

// Many of one instruction, which reads and writes a result r: `mnemonic r, first r rest`. Its text
// may name the operands %[a] and %[b], and %[scale], block scales of 1. It is one piece of
// assembly: between two, the compiler would take care of hazards that might be there.
#define INSTRUCTION(Name, result, a_words, b_words, mnemonic, first, rest)                   \
  struct Name {                                                                              \
    using Result = Words<result>;                                                            \
    using A = Words<a_words>;                                                                \
    using B = Words<b_words>;                                                                \
    template <int N>                                                                         \
    HK_DEVICE static void repeat(Result (&r)[1], A a, B b, u32 scale) {                      \
      asm volatile(".rept %[n]\n" TEXT_OF(mnemonic, "%[r]", first, rest) ".endr"             \
                   : [r] "+v"(r[0])                                                          \
                   : [a] "v"(a), [b] "v"(b), [scale] "v"(scale), [n] "n"(N));                \
    }                                                                                        \
    template <int N>                                                                         \
    HK_DEVICE static void repeat(Result (&r)[4], A a, B b, u32 scale) {                      \
      asm volatile(".rept %[n]\n" TEXT_OF(mnemonic, "%[r]", first, rest) TEXT_OF(            \
                       mnemonic, "%[s]", first, rest) TEXT_OF(mnemonic, "%[t]", first, rest) \
                       TEXT_OF(mnemonic, "%[u]", first, rest) ".endr"                        \
                   : [r] "+v"(r[0]), [s] "+v"(r[1]), [t] "+v"(r[2]), [u] "+v"(r[3])          \
                   : [a] "v"(a), [b] "v"(b), [scale] "v"(scale), [n] "n"(N / 4));            \
    }                                                                                        \
  }
#define TEXT_OF(mnemonic, r, first, rest) mnemonic " " r ", " first r rest "\n"
// r += a b
#define SUM(Name, result, a, b, mnemonic, ...) \
  INSTRUCTION(Name, result, a, b, mnemonic, "%[a], %[b], ", "" __VA_ARGS__)

// A lane's operands: 64 bytes of the memory.
struct Operands {
  static constexpr int kWords = 8;  // of each, at most
  Words<kWords> a, b;

  HK_DEVICE Operands(const MeasureArgs& args, const Place& place) {
    const auto from = (Global<const Words<kWords>>)args.memory + 2 * place.lane.id;
    a = from[0];
    b = from[1];
    pin_vector(a, b);  // have landed
  }

  template <class To>
  HK_DEVICE static To first(const Words<kWords>& from) {
    Plain<To> to;
    static_for<0, sizeof(To) / 4>([&](auto i) { to.word[i] = from[i.value]; });
    return bit_cast<To>(to);
  }
};

// `Results` chains, one instruction of each in turn.
template <class Instruction, int Results, int Repeats = 64>
struct Chain {
  static constexpr int kRepeats = Repeats;
  typename Instruction::A a;
  typename Instruction::B b;
  typename Instruction::Result results[Results];
  u32 scale = 0x7f7f7f7f;  // four of E8M0, all 1

  HK_DEVICE Chain(const MeasureArgs& args, const Place& place) {
    const Operands from(args, place);
    a = Operands::first<typename Instruction::A>(from.a);
    b = Operands::first<typename Instruction::B>(from.b);
    for (auto& result : results) {
      result = typename Instruction::Result(from.a[0]);
      pin_vector(result);
    }
    pin_vector(scale);
  }

  HK_DEVICE void step() { Instruction::template repeat<kRepeats>(results, a, b, scale); }

  HK_DEVICE u32 result() {
    asm volatile("s_nop 15\ns_nop 15");  // the wait states from a matrix result to its reader
    u32 all = 0;
    for (auto& result : results) {
      pin_vector(result);
      all ^= folded(result);
    }
    return all;
  }
};

template <class Instruction>
using Dependent = Chain<Instruction, 1>;
template <class Instruction>
using Independent = Chain<Instruction, 4>;

// The same with a priority of its own.
template <class Work, int Level>
struct Prioritised : Work {
  HK_DEVICE Prioritised(const MeasureArgs& args, const Place& place) : Work(args, place) {
    set_priority<Level>();
  }
};

}  // namespace hk::measure
