// How the waves of a workgroup and the instructions of a wave take turns.
#pragma once

#include "arch/arch.hpp"

namespace hk {

// Nothing moves across: neither in the compiler's schedulers nor by register pressure.
HK_DEVICE void fence_schedule() { __builtin_amdgcn_sched_barrier(0); }

HK_DEVICE void barrier() {
  fence_schedule();
  __builtin_amdgcn_s_barrier();
  fence_schedule();
}

// A barrier after which C++ may write to LDS what all waves have read before.
HK_DEVICE void take_over() {
  barrier();
  asm volatile("" ::: "memory");  // for the compiler alone: an acquire would wait for look-ups
}
// A barrier after which all waves see what each has written to LDS in C++. Without a release, which
// would wait for global loads, too: the assembly is for the compiler alone.
HK_DEVICE void synchronize() {
  asm volatile("" ::: "memory");
  arch::wait<arch::kNoWait, 0>();
  take_over();
}

// Computed here and not where the compiler would find it convenient: at the end of the loop, or
// just before its use. (Scalar registers; vector registers.)
template <class... T>
HK_DEVICE void pin_scalar(T&... values) {
  const auto pin = [](auto& value) { asm volatile("" : "+s"(value)); };
  (pin(values), ...);
}
template <class... T>
HK_DEVICE void pin_vector(T&... values) {
  const auto pin = [](auto& value) { asm volatile("" : "+v"(value)); };
  (pin(values), ...);
}

// Keeps values in accumulation registers from here on, from where the matrix unit can take
// operands.
template <class... T>
HK_DEVICE void pin_accumulators(T&... values) {
  const auto pin = [](auto& value) { asm volatile("" : "+a"(value)); };
  (pin(values), ...);
}

// Runs streams of work side by side: slot by slot, the share of each stream in that slot.
// A slot is what one matrix instruction hides: the compiler orders it, and only it.
template <int Begin, int End, class... Streams>
HK_DEVICE void interleave(Streams&&... streams) {
  static_for<Begin, End>([&](auto slot) {
    (streams(slot), ...);
    fence_schedule();
  });
}

// Share `slot` of `Slots` in `items` pieces of work: calls body with each index that falls to it.
template <int Slot, int First, int Slots, int Items, class F>
HK_DEVICE void spread(F&& body) {
  if constexpr (Slot >= First && Slot < First + Slots) {
    constexpr int kAt = Slot - First;
    static_for<(kAt * Items + Slots - 1) / Slots, ((kAt + 1) * Items + Slots - 1) / Slots>(body);
  }
}

// How the waves of a workgroup keep step: one barrier for each, before which a wave waits until at
// most `Pending` of its copies are in flight.
//
// PingPong: waves w and w + Waves/2 share a SIMD. The upper half runs half a step behind the lower
// one, so that while one of the two is in the first half of its step the other is in the second of
// its own. All meet where the early waves end a step, and the late ones are in the middle of
// theirs.
template <int Waves>
struct PingPong {
  static constexpr int kLate = 1;
  i32 late;  // wave-uniform: 0 or 1

  HK_DEVICE explicit PingPong(int wave) : late(wave / (Waves / 2)) {}
  template <int Pending>
  HK_DEVICE void middle() const {
    meet<Pending>(late);
  }
  template <int Pending>
  HK_DEVICE void end() const {
    meet<Pending>(1 - late);
  }

 private:
  template <int Pending>
  HK_DEVICE static void meet(i32 now) {
    fence_schedule();
    arch::wait_and_barrier_if<Pending>(now);
    fence_schedule();
  }
};

// All waves meet at the end of a step: those that share a SIMD are of different workgroups.
template <int Waves>
struct Together {
  static constexpr int kLate = 0;

  HK_DEVICE explicit Together(int) {}
  template <int>
  HK_DEVICE void middle() const {}
  template <int Pending>
  HK_DEVICE void end() const {
    if constexpr (Pending != arch::kNoWait) arch::wait<Pending, arch::kNoWait>();
    barrier();
  }
};

template <int Level>
HK_DEVICE void set_priority() {
  __builtin_amdgcn_s_setprio(Level);
}

}  // namespace hk
