// A buffer descriptor and its range check (CDNA ISA guides, "Buffer Resource" and "Range
// checking").
//
// Accesses out of range load zeros and store nothing. The public sources (the guides; LLVM AMDGPU
// usage, "Relaxed Buffer OOB Mode"; AMD's simulator, whose rules follow gfx950) agree on this:
//   - the offset is that of the VGPR plus that of the instruction
//   - with an index and a stride only the index is checked, against num_records
//   - otherwise bytes are checked: each dword of a wider access by itself; a dword that is only
//     partly within num_records is out of range; atomics are all or nothing
//   - the scalar offset counts; no sum of offsets wraps past num_records
// An access on which they disagree is a finding ("ambiguous", addresses.cpp).
#pragma once

#include <algorithm>
#include <cstdint>

namespace hk::emulator {

// A descriptor in 4 SGPRs, raw or structured, without swizzle.
struct BufferDescriptor {
  uint64_t base;
  uint32_t stride, num_records;
  bool swizzle, add_lane;

  explicit BufferDescriptor(const uint32_t* words)
      : base(words[0] | uint64_t(words[1] & 0xffff) << 32), stride(words[1] >> 16 & 0x3fff),
        num_records(words[2]), swizzle(words[1] >> 31), add_lane(words[3] >> 23 & 1) {}

  // Number of the `bytes` from byte `begin` on that are in range, in whole pieces of `piece` bytes
  // (a power of 2).
  uint32_t bytes_in_range(uint64_t begin, uint32_t bytes, uint32_t piece) const {
    const uint64_t room = begin < num_records ? num_records - begin : 0;
    return room >= bytes ? bytes : uint32_t(room) & ~(piece - 1);
  }
};

}  // namespace hk::emulator
