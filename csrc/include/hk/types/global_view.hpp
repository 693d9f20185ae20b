// Views of global memory that end where the data ends.
#pragma once

#include "../arch/arch.hpp"

namespace hk {

template <class T>
using Constant = const T __attribute__((address_space(4)))*;

// Memory that no one writes while the kernel runs, read through the scalar cache.
template <class T>
HK_DEVICE Constant<T> constant(const T* pointer) {
  return (Constant<T>)(u64)pointer;
}

// A buffer descriptor: `bytes` from a wave-uniform base. Loads past the end give 0, stores past
// it vanish (CDNA4 ISA, "Buffer Resource Descriptor"; word 3 as LLVM documents it for raw buffers).
struct BoundedView {
  __amdgpu_buffer_rsrc_t descriptor;

  HK_DEVICE BoundedView(u64 base, u32 bytes)
      : descriptor(__builtin_amdgcn_make_buffer_rsrc((void*)base, 0, i32(bytes), 0x00020000)) {}
};

// The size of a view without an end of its own, and a byte past the end of every view, as are the 4
// KiB after it: loads from there give 0, and stores change nothing.
inline constexpr u32 kNowhere = ~0xfffu;

// `Words` neighbours, at a byte that is a multiple of all of them.
template <int Words>
HK_DEVICE Vec<u32, Words> load_words(BoundedView src, u32 offset) {
  static_assert(Words == 2 || Words == 4);
  if constexpr (Words == 4)
    return __builtin_amdgcn_raw_buffer_load_b128(src.descriptor, offset, 0, 0);
  else
    return __builtin_amdgcn_raw_buffer_load_b64(src.descriptor, offset, 0, 0);
}

HK_DEVICE u32 load_word(BoundedView src, u32 offset) {
  return __builtin_amdgcn_raw_buffer_load_b32(src.descriptor, offset, 0, 0);
}

HK_DEVICE u64 address(const void* pointer) { return u64(pointer); }

// The product of two wave-uniform numbers below 2^32: two scalar instructions.
HK_DEVICE u64 wide_mul(u32 a, u32 b) { return u64(a) * b; }

// Elements before the `index`th of those that are `stride` apart.
HK_DEVICE u64 offset(u32 index, i64 stride) { return index * u64(stride); }

// The same number, which the compiler now knows to be one per wave. Between min and max it keeps
// them scalar: as a clamp they would become v_med3, and a descriptor made from that a loop over
// the lanes.
HK_DEVICE i32 scalar(i32 uniform) {
  asm("" : "+s"(uniform));
  return uniform;
}

// A wave-uniform number from a vector register, where floats are computed.
HK_DEVICE f32 to_scalar(f32 uniform) {
  return bit_cast<f32>(__builtin_amdgcn_readfirstlane(bit_cast<i32>(uniform)));
}

// min(max(x, 0), limit), of wave-uniform numbers.
HK_DEVICE u32 clamp_scalar(i32 x, i32 limit) { return u32(min(scalar(max(x, 0)), limit)); }

// A stretch of memory, wave-uniform: what a descriptor is made from, in three scalar registers.
struct RowSpan {
  u64 base;
  u32 bytes;

  HK_DEVICE operator BoundedView() const { return {base, bytes}; }
};

}  // namespace hk
