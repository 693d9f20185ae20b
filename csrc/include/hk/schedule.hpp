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

// Waves w and w + Waves/2 share a SIMD. The upper half runs one phase behind the lower half, so
// that on each SIMD one wave is in an even phase while the other is in an odd one. All waves then
// execute the same number of barriers: the late ones one more at the start, the early at the end.
template <int Waves>
struct PingPong {
  bool late;

  HK_DEVICE explicit PingPong(int wave) : late(wave >= Waves / 2) {}
  HK_DEVICE void enter() const {
    if (late) barrier();
  }
  HK_DEVICE void leave() const {
    if (!late) barrier();
  }
};

template <int Level>
HK_DEVICE void set_priority() {
  __builtin_amdgcn_s_setprio(Level);
}

}  // namespace hk
