// The device's element types, short vectors of them and compile-time loops.
#pragma once

#include "scalar.hpp"

namespace hk {

using bf16 = __bf16;
using f16 = _Float16;

// OCP FP8, as caches keep it: codes, not numbers to compute with.
struct E4m3 {
  static constexpr char kName[16] = "e4m3";
};

template <class A, class B>
inline constexpr bool is_same = false;
template <class A>
inline constexpr bool is_same<A, A> = true;

template <bool Condition, class A, class B>
struct Choice {
  using Type = A;
};
template <class A, class B>
struct Choice<false, A, B> {
  using Type = B;
};
template <bool Condition, class A, class B>
using Conditional = typename Choice<Condition, A, B>::Type;

template <class T, int N>
using Vec = T __attribute__((ext_vector_type(N)));

#define HK_DEVICE __attribute__((device, always_inline)) inline

// Declares a kernel for a number of threads in a workgroup, and of waves that share a SIMD.
#define HK_KERNEL(threads, waves_per_simd)                                         \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads), \
                            amdgpu_waves_per_eu(waves_per_simd, waves_per_simd))) void

template <class To, class From>
HK_DEVICE To bit_cast(From from) {  // by value: clang 22 misreads an element of a vector
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

HK_DEVICE constexpr i32 min(i32 a, i32 b) { return a < b ? a : b; }
HK_DEVICE constexpr i32 max(i32 a, i32 b) { return a > b ? a : b; }
HK_DEVICE constexpr i32 ceil_div(i32 a, i32 b) { return (a + b - 1) / b; }

// An index that is a type, so that what it selects is known at compile time.
template <int I>
struct Index {
  static constexpr int value = I;
  HK_DEVICE constexpr operator int() const { return I; }
};

template <int Begin, int End, class F>
HK_DEVICE void static_for(F&& body) {
  if constexpr (Begin < End) {
    body(Index<Begin>{});
    static_for<Begin + 1, End>(body);
  }
}

}  // namespace hk
