// Accesses to global memory: streams that go round and round, and chains.
#pragma once

#include "pipe.hpp"

namespace hk::measure {

// The memory, taken in turn by all waves of the launch: `Bytes` by one access of a wave.
template <int Bytes>
struct Stream {
  static constexpr u32 kBytes = Bytes;
  static constexpr u32 kStepBytes = 2 * kGroup * Bytes;
  __amdgpu_buffer_rsrc_t memory;
  Words<4> descriptor;  // the same, for assembly
  u32 at, advance, mask, lane_at;

  // Goes through the first `bytes`.
  HK_DEVICE Stream(const MeasureArgs& args, const Place& place, u32 bytes)
      : memory(BoundedView(address(args.memory), args.bytes).descriptor),
        descriptor{u32(address(args.memory)), u32(address(args.memory) >> 32), args.bytes,
                   0x00020000},
        at(place.index() * kStepBytes & (bytes - 1)),
        advance(args.workgroups * place.waves * kStepBytes), mask(bytes - 1),
        lane_at(place.lane.id * (Bytes / arch::kLanes)) {}
  HK_DEVICE Stream(const MeasureArgs& args, const Place& place) : Stream(args, place, args.bytes) {}

  template <int N>
  HK_DEVICE static void wait() {
    arch::wait<N, arch::kNoWait>();
  }
  HK_DEVICE void next() { at = (at + advance) & mask; }

  HK_DEVICE void load(Words<4>& to, u32 from) const {
    asm volatile("buffer_load_dwordx4 %0, %1, %2, %3 offen"
                 : "=v"(to)
                 : "v"(lane_at), "s"(descriptor), "s"(from));
  }
  HK_DEVICE void store(const Words<4>& data, u32 to) const {
    asm volatile("buffer_store_dwordx4 %0, %1, %2, %3 offen" ::"v"(data), "v"(lane_at),
                 "s"(descriptor), "s"(to));
  }
};

using WideStream = Stream<16 * arch::kLanes>;

struct ReadMemory : WideStream, Landing<4> {
  using WideStream::WideStream;
  template <int I>
  HK_DEVICE void start() {
    load(words[I], at + I * kBytes);
  }
};

struct WriteMemory : WideStream {
  Words<4> data;

  HK_DEVICE WriteMemory(const MeasureArgs& args, const Place& place)
      : WideStream(args, place), data(args.stride) {}
  template <int I>
  HK_DEVICE void start() {
    store(data, at + I * kBytes);
  }
  template <int H>
  HK_DEVICE void ended() {}
  HK_DEVICE u32 result() const { return data[0]; }
};

// Copies from the lower half of the memory to the upper one. A group that was read is written while
// the other one is in flight; the second group is written when the next step has begun.
struct CopyMemory : WideStream, Landing<4> {
  u32 half, before;

  HK_DEVICE CopyMemory(const MeasureArgs& args, const Place& place)
      : WideStream(args, place, args.bytes / 2), half(args.bytes / 2), before(at) {}
  template <int I>
  HK_DEVICE void start() {
    load(words[I], at + I * kBytes);
  }
  template <int N>
  HK_DEVICE static void wait() {
    WideStream::wait<2 * N>();  // a group of writes is younger, too
  }
  template <int H>
  HK_DEVICE void ended() {
    Landing::ended<H>();
    static_for<H * kGroup, (H + 1) * kGroup>(
        [&](auto i) { store(words[i.value], half + (H ? before : at) + i.value * kBytes); });
  }
  HK_DEVICE void next() {
    before = at;
    WideStream::next();
  }
};

// Copies to LDS, past the registers.
struct CopyToLds : Stream<arch::kCopyBytes * arch::kLanes> {
  static constexpr u32 kLdsBytes = kWaves * kStepBytes;
  u32 to;

  HK_DEVICE CopyToLds(const MeasureArgs& args, const Place& place) : Stream(args, place) {
    extern __attribute__((shared)) u32 lds[];
    to = shared_address(lds) + place.wave * kStepBytes;
  }
  template <int I>
  HK_DEVICE void start() {
    __builtin_amdgcn_raw_ptr_buffer_load_lds(
        memory, (__attribute__((address_space(3))) void*)(to + I * kBytes), arch::kCopyBytes,
        lane_at, at + I * kBytes, 0, 0);
  }
  template <int H>
  HK_DEVICE void ended() {}
  HK_DEVICE u32 result() const { return at; }
};

// A chain through the memory: each word that it meets holds the byte where the next one is.
struct FollowMemory {
  u32 at;
  u64 memory;

  HK_DEVICE FollowMemory(const MeasureArgs& args, const Place&)
      : at(args.stride), memory(address(args.memory)) {
    pin_vector(at);
  }
  HK_DEVICE void follow() {
    asm volatile(".rept 16\nglobal_load_dword %0, %0, %1\ns_waitcnt vmcnt(0)\n.endr"
                 : "+v"(at)
                 : "s"(memory));
  }
};

struct FollowScalar {
  u32 at;
  u64 memory;

  HK_DEVICE FollowScalar(const MeasureArgs& args, const Place&)
      : at(args.stride), memory(address(args.memory)) {}
  HK_DEVICE void follow() {
    asm volatile(".rept 16\ns_load_dword %0, %1, %0\ns_waitcnt lgkmcnt(0)\n.endr"
                 : "+s"(at)
                 : "s"(memory));
  }
};

}  // namespace hk::measure
