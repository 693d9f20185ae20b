// Kernels that read rows, reduce each to one number, and write them: RMSNorm, quantisation. A
// workgroup of 4 waves has a row of up to 2048 `kParts` channels, which stays in registers.
// `kStreamed`: loads are non-temporal.
#pragma once

#include "hk/args/traffic.hpp"
#include "words.hpp"

namespace hk::traffic {

template <int kParts_, bool kStreamed>
struct Row {
  static constexpr int kThreads = 256, kWaves = 4, kParts = kParts_, kPart = kThreads * 8;

  // The lane's 8 channels of each part; beyond the row's end zeros. Every load is in flight before
  // the first wait, so a lane beyond the end loads its first ones again.
  HK_DEVICE static void load_row(Words* to, u64 row, u32 channels) {
    static_for<0, kParts>([&](auto part) {
      const u32 from = inside(part.value, channels) ? at(part.value) : 0;
      const auto words = Global<const Words>(row + from * 2);
      if constexpr (kStreamed)
        to[part.value] = __builtin_nontemporal_load(words);
      else
        to[part.value] = *words;
    });
    static_for<0, kParts>([&](auto part) {
      if (!inside(part.value, channels)) to[part.value] = Words{};
    });
  }
  HK_DEVICE static u32 at(int part) { return part * kPart + __builtin_amdgcn_workitem_id_x() * 8; }
  HK_DEVICE static bool inside(int part, u32 channels) { return at(part) < channels; }

  // Sum or maximum over the workgroup, for all its lanes.
  template <class Combine>
  HK_DEVICE static f32 together(f32 value, Combine combine) {
    extern __attribute__((shared)) f32 lds[];
    const Lane lane = this_lane();
    static_for<0, 6>(
        [&](auto bit) { value = combine(value, of_lane(value, lane.id ^ 1 << bit.value)); });
    if (lane.id == 0) lds[this_wave()] = value;
    arch::wait<arch::kNoWait, 0>();
    barrier();
    value = lds[0];
    static_for<1, kWaves>([&](auto wave) { value = combine(value, lds[wave.value]); });
    return value;
  }
};

template <int kParts, bool kStreamed>
struct RowNorm : Row<kParts, kStreamed> {
  using Args = RowArgs;
  using Base = Row<kParts, kStreamed>;
  static constexpr f32 kEpsilon = 1e-5f;

  HK_DEVICE static void run(const Args& args) {
    const u64 row = u64(__builtin_amdgcn_workgroup_id_x()) * args.channels * 2;
    Words words[kParts];
    Base::load_row(words, address(args.x) + row, args.channels);
    f32 squares = 0;
    static_for<0, kParts>([&](auto part) {
      const Floats values = widened(words[part.value]);
      static_for<0, 8>([&](auto i) { squares += values[i.value] * values[i.value]; });
    });
    // weights come before the barrier, since later loads would wait for stores
    Words weight[kParts];
    static_for<0, kParts>([&](auto part) {
      const bool inside = Base::inside(part.value, args.channels);
      weight[part.value] = load(address(args.weight) + (inside ? Base::at(part.value) * 2 : 0));
    });
    const f32 sum = Base::together(squares, [](f32 a, f32 b) { return a + b; });
    const f32 factor = __builtin_amdgcn_rsqf(sum / f32(args.channels) + kEpsilon);
    static_for<0, kParts>([&](auto part) {
      if (!Base::inside(part.value, args.channels)) return;
      store(address(args.out) + row + Base::at(part.value) * 2,
            narrowed(widened(words[part.value]) * factor * widened(weight[part.value])));
    });
  }
};

// Casts a row to E4M3, with one scale.
template <int kParts, bool kStreamed>
struct RowCast : Row<kParts, kStreamed> {
  using Args = RowArgs;
  using Base = Row<kParts, kStreamed>;

  HK_DEVICE static void run(const Args& args) {
    const u32 number = __builtin_amdgcn_workgroup_id_x();
    const u64 row = u64(number) * args.channels;
    Words words[kParts];
    Base::load_row(words, address(args.x) + row * 2, args.channels);
    f32 largest = 0;
    static_for<0, kParts>([&](auto part) {
      const Floats values = widened(words[part.value]);
      static_for<0, 8>(
          [&](auto i) { largest = __builtin_fmaxf(largest, __builtin_fabsf(values[i.value])); });
    });
    largest = Base::together(largest, [](f32 a, f32 b) { return __builtin_fmaxf(a, b); });
    const f32 factor = largest > 0 ? arch::kFp8Max * __builtin_amdgcn_rcpf(largest) : 1.0f;
    static_for<0, kParts>([&](auto part) {
      if (!Base::inside(part.value, args.channels)) return;
      const Floats values = widened(words[part.value]) * factor;
      Vec<u32, 2> packed;
      static_for<0, 2>([&](auto word) {
        f32 four[4];
        static_for<0, 4>([&](auto i) {
          four[i] = __builtin_amdgcn_fmed3f(values[4 * word.value + i.value], -arch::kFp8Max,
                                            arch::kFp8Max);
        });
        const i32 low = __builtin_amdgcn_cvt_pk_fp8_f32(four[0], four[1], 0, false);
        packed[word.value] = __builtin_amdgcn_cvt_pk_fp8_f32(four[2], four[3], low, true);
      });
      store(address(args.out) + row + Base::at(part.value), packed);
    });
    if (__builtin_amdgcn_workitem_id_x() == 0)
      store(address(args.scales) + u64(number) * 4, largest / arch::kFp8Max);
  }
};

// out = x + y of float32: a lane has four numbers.
struct Add {
  using Args = AddArgs;
  static constexpr int kThreads = 256;

  HK_DEVICE static void run(const Args& args) {
    const u64 at =
        (u64(__builtin_amdgcn_workgroup_id_x()) * kThreads + __builtin_amdgcn_workitem_id_x()) * 16;
    using Four = Vec<f32, 4>;
    store(address(args.out) + at,
          bit_cast<Four>(load(address(args.x) + at)) + bit_cast<Four>(load(address(args.y) + at)));
  }
};

}  // namespace hk::traffic
