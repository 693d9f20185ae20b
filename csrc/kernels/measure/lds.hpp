// Accesses to LDS, each wave in 8 KiB of its own, `stride` bytes from lane to lane.
#pragma once

#include "pipe.hpp"

namespace hk::measure {

// The wave's part. Each word holds its own address at first.
struct Region {
  u32 at;  // the address of this lane's accesses

  HK_DEVICE Region(const MeasureArgs& args, const Place& place) {
    extern __attribute__((shared)) u32 lds[];
    const u32 base = place.wave * kRegionBytes;
    for (u32 i = 4 * place.lane.id; i < kRegionBytes; i += 4 * arch::kLanes)
      lds[(base + i) / 4] = shared_address(lds) + base + i;
    arch::wait<arch::kNoWait, 0>();
    at = shared_address(lds) + base + place.lane.id * args.stride;
  }

  template <int N>
  HK_DEVICE static void wait() {
    arch::wait<arch::kNoWait, N>();
  }
  HK_DEVICE void next() {}
};

// An instruction by its text: what is read (%0) or written (%1), at an address (%1 or %0).
#define LDS_READ(Name, N, text)                                  \
  struct Name : Region, Landing<N> {                             \
    using Region::Region;                                        \
    template <int I>                                             \
    HK_DEVICE void start() {                                     \
      asm volatile(text : "=v"(this->words[I]) : "v"(this->at)); \
    }                                                            \
  }
#define LDS_WRITE(Name, N, text)                                \
  struct Name : Region {                                        \
    Words<N> data;                                              \
    HK_DEVICE Name(const MeasureArgs& args, const Place& place) \
        : Region(args, place), data(args.stride) {}             \
    template <int I>                                            \
    HK_DEVICE void start() {                                    \
      asm volatile(text ::"v"(this->at), "v"(data));            \
    }                                                           \
    template <int H>                                            \
    HK_DEVICE void ended() {}                                   \
    HK_DEVICE u32 result() const { return folded(data); }       \
  }

LDS_READ(Read32, 1, "ds_read_b32 %0, %1");
LDS_READ(Read64, 2, "ds_read_b64 %0, %1");
LDS_READ(Read128, 4, "ds_read_b128 %0, %1");
LDS_WRITE(Write32, 1, "ds_write_b32 %0, %1");
LDS_WRITE(Write64, 2, "ds_write_b64 %0, %1");
LDS_WRITE(Write128, 4, "ds_write_b128 %0, %1");

struct FollowLds : Region {
  using Region::Region;
  HK_DEVICE void follow() {
    asm volatile(".rept 16\nds_read_b32 %0, %0\ns_waitcnt lgkmcnt(0)\n.endr" : "+v"(at));
  }
};

}  // namespace hk::measure
