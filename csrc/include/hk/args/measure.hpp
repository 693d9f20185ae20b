// The one argument of the measuring kernels, passed by value: plain C++ for host and device.
//
// The measured number follows from two launches that differ in `steps` alone: from the difference
// of their clocks, so that what comes before and after the loop does not count.
#pragma once

#include "../types/scalar.hpp"
#include "workgroups.hpp"

namespace hk {

// When a wave's loop ran: by its compute unit's clock, and by the device's watch of 100 MHz, which
// is the same for all compute units.
struct MeasureRecord {
  u64 clocks;        // from the beginning to the end
  u64 began, ended;  // ticks
};

struct MeasureArgs {
  void* records;  // [workgroups, waves] MeasureRecord; waves that take no part write none
  void* results;  // [workgroups, threads] u32: what was computed
  void* memory;   // operands, or what is streamed
  u32 bytes;      // of it: a power of two from 16 KiB (copies: 32) to 2 GiB
  i32 workgroups;
  i32 steps;   // of the loop
  u32 waves;   // bit w: wave w of a workgroup takes part. Waves w and w + 4 share a SIMD
  u32 stride;  // bytes from lane to lane of an LDS access, at most 128; others read no stride
};

constexpr Workgroups workgroups(const MeasureArgs& args, TileSize) { return {args.workgroups}; }

}  // namespace hk
