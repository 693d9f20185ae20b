// A buffer descriptor and its range check (CDNA ISA guides, "Buffer Resource" and "Range checking").
//
// What is out of range loads zeros and stores nothing. The public sources (the guides; LLVM AMDGPU
// usage, "Relaxed Buffer OOB Mode"; AMD's simulator, whose rules follow gfx950) agree on this:
//   - the offset is that of the VGPR plus that of the instruction
//   - with an index and a stride the index alone is checked, against num_records
//   - else bytes are: each dword of a wider access by itself, and whole, so that one that num_records
//     ends within is out of range; atomics are all or nothing
//   - the scalar offset counts; no sum of offsets wraps past num_records
// Where they do not, the access is a finding ("ambiguous", addresses.cpp).
#pragma once

#include <algorithm>
#include <cstdint>

namespace hk::emulator {

// 4 SGPRs; raw or structured, without swizzle.
struct BufferDescriptor {
  uint64_t base;
  uint32_t stride, num_records;
  bool swizzle, add_lane;

  explicit BufferDescriptor(const uint32_t* words)
      : base(words[0] | uint64_t(words[1] & 0xffff) << 32), stride(words[1] >> 16 & 0x3fff),
        num_records(words[2]), swizzle(words[1] >> 31), add_lane(words[3] >> 23 & 1) {}

  // How many of the `bytes` from byte `begin` on are in range, in whole pieces of `piece` bytes (a
  // power of 2).
  uint32_t bytes_in_range(uint64_t begin, uint32_t bytes, uint32_t piece) const {
    const uint64_t room = begin < num_records ? num_records - begin : 0;
    return room >= bytes ? bytes : uint32_t(room) & ~(piece - 1);
  }
};

}  // namespace hk::emulator
