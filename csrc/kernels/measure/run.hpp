// The frame of all measuring kernels: they run their work, timed, and leave a record.
//
// A work is constructed before all waves meet, and has
//   kRepeats       of the measured thing in a step
//   step()         straight-line code that the compiler can neither drop nor reorder
//   result()       waits for what is in flight; a value that depends on all of it
#pragma once

#include "hk/args/measure.hpp"
#include "hk/hk.hpp"
#include "hk/kernel_info.hpp"

namespace hk::measure {

// N registers: one is no vector, which assembly would not take.
template <int N>
struct Registers {
  using Type = Vec<u32, N>;
};
template <>
struct Registers<1> {
  using Type = u32;
};
template <int N>
using Words = typename Registers<N>::Type;

template <class Value>
struct Plain {
  u32 word[sizeof(Value) / 4];
};

// All words of a value in one.
template <class Value>
HK_DEVICE u32 folded(const Value& value) {
  u32 all = 0;
  for (const u32 word : bit_cast<Plain<Value>>(value).word) all ^= word;
  return all;
}

template <class T>
using Global = T __attribute__((address_space(1)))*;

// Facts that tell the kernels apart.
struct Facts {
  char run[48];  // what is measured
  i32 repeats;   // of it, in a step
};

// The place of a wave in the launch.
struct Place {
  i32 workgroup, wave, waves;  // of all waves of a workgroup
  Lane lane;

  HK_DEVICE i32 index() const { return workgroup * waves + wave; }
};

struct Watch {
  u64 clocks, ticks;

  HK_DEVICE static Watch read() {
    Watch now;
    asm volatile("s_memrealtime %0\ns_memtime %1\ns_waitcnt lgkmcnt(0)"
                 : "=&s"(now.ticks), "=&s"(now.clocks));
    return now;
  }
};

// Work of one kind in the lower half of the waves, another in the upper half: wave w shares its
// SIMD with wave w + 4.
template <class Lower, class Upper>
struct Pair {};

template <class Work>
struct Timed {
  static constexpr int kRepeats = Work::kRepeats;

  HK_DEVICE static void run(const MeasureArgs& args, const Place& place) {
    Work work(args, place);
    barrier();
    if (!(args.waves >> place.wave & 1)) return;
    const Watch began = Watch::read();
#pragma clang loop unroll(disable)  // newer compilers would: then not every step executes the same
    for (i32 left = args.steps; left > 0; --left) work.step();
    const u32 result = work.result();
    fence_schedule();
    const Watch ended = Watch::read();
    Global<u32>(args.results)[place.index() * arch::kLanes + place.lane.id] = result;
    if (place.lane.id == 0)
      Global<MeasureRecord>(args.records)[place.index()] = {ended.clocks - began.clocks,
                                                            began.ticks, ended.ticks};
  }
};

template <class Lower, class Upper>
struct Timed<Pair<Lower, Upper>> {
  static constexpr int kRepeats = Lower::kRepeats;

  HK_DEVICE static void run(const MeasureArgs& args, const Place& place) {
    if (place.wave < place.waves / 2)
      Timed<Lower>::run(args, place);
    else
      Timed<Upper>::run(args, place);
  }
};

template <class Work, int Waves>
HK_DEVICE void measure(const MeasureArgs& args) {
  Timed<Work>::run(args, {i32(__builtin_amdgcn_workgroup_id_x()), this_wave(), Waves, this_lane()});
}

// Facts and sizes that the launch must know (hk_backend/lab/toolchain/build.py).
template <class Work>
constexpr KernelInfo<Facts> info(const char* run, u32 lds) {
  Facts facts = {};
  for (int i = 0; run[i]; ++i) facts.run[i] = run[i];
  facts.repeats = Timed<Work>::kRepeats;
  return {1, 1, 1, lds, 0, "measure", "measure", facts};
}

inline constexpr int kWaves = 8;               // of a workgroup, but for those that count waves
inline constexpr u32 kRegionBytes = 8 * 1024;  // of LDS, a wave's own
inline constexpr u32 kLds = kWaves * kRegionBytes;

}  // namespace hk::measure

// Kernel measure_`name`: `waves` to a workgroup and `lds` bytes; the rest is the work.
#define MEASURE_WITH(name, waves, lds, ...)                      \
  HK_KERNEL(waves* hk::arch::kLanes, hk::ceil_div(waves, 4))     \
  measure_##name(hk::MeasureArgs args) {                         \
    using namespace hk::measure;                                 \
    hk::measure::measure<__VA_ARGS__, waves>(args);              \
  }                                                              \
  namespace hk::measure {                                        \
  HK_KERNEL_INFO(measure_##name, info<__VA_ARGS__>(#name, lds)); \
  }
#define MEASURE(name, ...) MEASURE_WITH(name, hk::measure::kWaves, 0, __VA_ARGS__)
#define MEASURE_LDS(name, ...) \
  MEASURE_WITH(name, hk::measure::kWaves, hk::measure::kLds, __VA_ARGS__)
