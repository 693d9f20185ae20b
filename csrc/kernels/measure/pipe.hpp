// Accesses to memory or LDS: many in flight, for how fast they go, or one after the other, for how
// long one takes.
#pragma once

#include "run.hpp"

namespace hk::measure {

// Two groups of accesses in turn: one is waited for while the other is in flight. An access has
//   start<I>()   access I of the step, 0 to 2 * kGroup - 1
//   wait<N>()    all but the last N have been completed
//   ended<H>()   group H has been waited for
//   next()       the step is over
//   result()     a value that depends on what was read
inline constexpr int kGroup = 8;

template <class Access>
struct Pipe {
  static constexpr int kRepeats = 2 * kGroup;
  Access access;

  HK_DEVICE Pipe(const MeasureArgs& args, const Place& place) : access(args, place) {}

  HK_DEVICE void step() {
    half<0>();
    half<1>();
    access.next();
  }

  HK_DEVICE u32 result() {
    Access::template wait<0>();
    access.template ended<1>();
    return access.result();
  }

 private:
  template <int H>
  HK_DEVICE void half() {
    static_for<H * kGroup, (H + 1) * kGroup>([&](auto i) { access.template start<i.value>(); });
    Access::template wait<kGroup>();
    access.template ended<1 - H>();
  }
};

// Registers for what loads read: they hold nothing until the loads have been waited for.
template <int N>
struct Landing {
  Words<N> words[2 * kGroup];

  HK_DEVICE Landing() {
    for (auto& one : words) {
      one = 0;
      pin_vector(one);
    }
  }

  template <int H>
  HK_DEVICE void ended() {
    static_for<H * kGroup, (H + 1) * kGroup>([&](auto i) { pin_vector(words[i.value]); });
  }
  HK_DEVICE u32 result() const {
    u32 all = 0;
    for (const auto& one : words) all ^= folded(one);
    return all;
  }
};

// Accesses one after the other, of which each gives the address of the next: `follow()` is all of a
// step's.
template <class Access>
struct Chase {
  static constexpr int kRepeats = 16;
  Access access;

  HK_DEVICE Chase(const MeasureArgs& args, const Place& place) : access(args, place) {}
  HK_DEVICE void step() { access.follow(); }
  HK_DEVICE u32 result() { return access.at; }
};

}  // namespace hk::measure
