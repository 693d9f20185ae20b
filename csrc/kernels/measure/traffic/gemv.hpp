// A weight times one row. A workgroup of 4 waves computes 16 results, each wave over a quarter of
// the depth: pieces of 64 bytes of 16 rows at a time, which matrix instructions multiply with x.
#pragma once

#include "hk/args/traffic.hpp"
#include "words.hpp"

namespace hk::traffic {

using Sums = Vec<f32, 4>;  // of the 16 columns all are the same

// How pieces are multiplied: `kPieces` by one instruction. `scales`: a byte for each of 4 pieces.
struct Bf16Pieces {
  static constexpr int kPieces = 1;
  static constexpr bool kBlockScales = false, kRowScales = false;

  template <int I>
  HK_DEVICE static Sums multiply(const Words* a, const Words* x, Sums sums, u32, u32) {
    return __builtin_amdgcn_mfma_f32_16x16x32_bf16(bit_cast<Vec<bf16, 8>>(a[0]),
                                                   bit_cast<Vec<bf16, 8>>(x[0]), sums, 0, 0, 0);
  }
};

using Eight = Vec<i32, 8>;
HK_DEVICE Eight joined(Words low, Words high) {
  return __builtin_shufflevector(bit_cast<Vec<i32, 4>>(low), bit_cast<Vec<i32, 4>>(high), 0, 1, 2,
                                 3, 4, 5, 6, 7);
}

struct Fp8Pieces {
  static constexpr int kPieces = 2;
  static constexpr bool kBlockScales = false, kRowScales = true;

  template <int I>
  HK_DEVICE static Sums multiply(const Words* a, const Words* x, Sums sums, u32, u32) {
    return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(joined(a[0], a[1]), joined(x[0], x[1]),
                                                            sums, 0, 0, 0, 0, 0, 0);
  }
};

struct Fp4Pieces {
  static constexpr int kPieces = 1;
  static constexpr bool kBlockScales = true, kRowScales = false;
  static constexpr int kFp4 = 4;

  template <int I>
  HK_DEVICE static Sums multiply(const Words* a, const Words* x, Sums sums, u32 a_scales,
                                 u32 x_scales) {
    return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
        joined(a[0], a[0]), joined(x[0], x[0]), sums, kFp4, kFp4, I % 4, a_scales, I % 4, x_scales);
  }
};

template <class Format>
struct Gemv {
  using Args = GemvArgs;
  static constexpr int kThreads = 256, kRows = 16, kWaves = 4;
  static constexpr int kGroup = 8;  // pieces that a wave loads at once
  static constexpr u32 kGroupBytes = 64 * kGroup;

  struct Pieces {
    Words a[kGroup], x[kGroup];
    u32 a_scales[kGroup / 4], x_scales[kGroup / 4];
  };

  HK_DEVICE static void run(const Args& args) {
    const Lane lane = this_lane();
    const int wave = this_wave(), row = __builtin_amdgcn_workgroup_id_x() * kRows + lane.id % 16;
    const int groups = args.row_bytes / kGroupBytes;
    Pieces now, next;
    load_group(next, args, row, wave, lane);
    Sums sums = {};
    for (int group = wave; group < groups; group += kWaves) {
      now = next;
      if (group + kWaves < groups) load_group(next, args, row, group + kWaves, lane);
      static_for<0, kGroup / Format::kPieces>([&](auto i) {
        constexpr int kFirst = i.value * Format::kPieces;
        sums =
            Format::template multiply<kFirst>(now.a + kFirst, now.x + kFirst, sums,
                                              now.a_scales[kFirst / 4], now.x_scales[kFirst / 4]);
      });
    }
    finish(args, sums, wave, lane);
  }

 private:
  // Lane's 16 bytes of each piece of a group: of its row, and of x.
  HK_DEVICE static void load_group(Pieces& to, const Args& args, int row, int group, Lane lane) {
    const u32 at = group * kGroupBytes + lane.id / 16 * 16;
    const u64 a = address(args.weight) + u64(row) * args.row_bytes + at, x = address(args.x) + at;
    static_for<0, kGroup>([&](auto i) {
      to.a[i] = load(a + 64 * i);
      to.x[i] = load(x + 64 * i);
    });
    if constexpr (Format::kBlockScales) {  // a byte for 16 of a row's bytes
      const u32 first = group * (kGroupBytes / 16) + lane.id / 16 * 4;
      const u64 of_row = address(args.weight_scales) + u64(row) * (args.row_bytes / 16) + first;
      static_for<0, kGroup / 4>([&](auto i) {
        to.a_scales[i] = *Global<const u32>(of_row + 16 * i);
        to.x_scales[i] = *Global<const u32>(address(args.x_scales) + first + 16 * i);
      });
    }
  }

  // The waves' sums together; a lane of column 0 holds four rows.
  HK_DEVICE static void finish(const Args& args, Sums sums, int wave, Lane lane) {
    extern __attribute__((shared)) f32 lds[];
    if (lane.id % 16 == 0)
      static_for<0, 4>([&](auto i) { lds[wave * kRows + lane.id / 4 + i.value] = sums[i.value]; });
    arch::wait<arch::kNoWait, 0>();
    barrier();
    if (wave != 0 || lane.id >= kRows) return;
    f32 sum = 0;
    static_for<0, kWaves>([&](auto i) { sum += lds[i * kRows + lane.id]; });
    const int row = __builtin_amdgcn_workgroup_id_x() * kRows + lane.id;
    if constexpr (Format::kRowScales)
      sum *= *Global<const f32>(args.x_scales) * Global<const f32>(args.weight_scales)[row];
    Global<f32>(args.out)[row] = sum;
  }
};

}  // namespace hk::traffic
