// Instructions that issue without a unit of their own: waits, barriers, branches, scalar
// arithmetic, nothing.
#pragma once

#include "run.hpp"

namespace hk::measure {

// A work that keeps nothing in vector registers.
struct Scalar {
  static constexpr int kRepeats = 64;
  u32 value;

  HK_DEVICE Scalar(const MeasureArgs& args, const Place&) : value(args.stride) {}
  HK_DEVICE u32 result() { return value; }
};

struct Nothing : Scalar {
  using Scalar::Scalar;
  HK_DEVICE void step() {}
};

template <int N>
struct Nop : Scalar {
  using Scalar::Scalar;
  HK_DEVICE void step() { asm volatile(".rept 64\ns_nop %0\n.endr" ::"n"(N)); }
};

struct ScalarAdd : Scalar {
  using Scalar::Scalar;
  HK_DEVICE void step() {
    asm volatile(".rept 64\ns_add_u32 %0, %0, 1\n.endr" : "+s"(value)::"scc");
  }
};

struct Branch : Scalar {
  using Scalar::Scalar;
  HK_DEVICE void step() { asm volatile(".rept 64\ns_branch 1\ns_nop 0\n.endr"); }
};

struct Barrier : Scalar {
  using Scalar::Scalar;
  HK_DEVICE void step() { asm volatile(".rept 64\ns_barrier\n.endr"); }
};

}  // namespace hk::measure
