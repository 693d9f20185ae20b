// 16 bytes of global memory at a time, and sums over lanes.
#pragma once

#include "hk/hk.hpp"
#include "hk/kernel_info.hpp"

namespace hk::traffic {

using Words = Vec<u32, 4>;
template <class T>
using Global = T __attribute__((address_space(1)))*;

HK_DEVICE Words load(u64 from) { return *Global<const Words>(from); }
template <class Value>
HK_DEVICE void store(u64 to, Value value) {
  *Global<Value>(to) = value;
}

using Floats = Vec<f32, 8>;
HK_DEVICE Floats widened(Words words) {
  return __builtin_convertvector(bit_cast<Vec<bf16, 8>>(words), Floats);
}
HK_DEVICE Words narrowed(Floats values) {
  return bit_cast<Words>(__builtin_convertvector(values, Vec<bf16, 8>));
}

HK_DEVICE f32 of_lane(f32 value, int lane) {
  return bit_cast<f32>(__builtin_amdgcn_ds_bpermute(4 * lane, bit_cast<i32>(value)));
}

// Over the lanes that differ in bits `From` to `To` - 1 of their number; each gets the sum.
template <int From, int To>
HK_DEVICE f32 sum_over_lanes(f32 value, int lane) {
  static_for<From, To>([&](auto bit) { value += of_lane(value, lane ^ 1 << bit); });
  return value;
}

// Facts that tell the kernels apart.
struct Facts {
  char kernel[32];
};

}  // namespace hk::traffic
