// Kernels that read rows, compute a little, and write them: a cast, rotary embedding, LayerNorm.
#pragma once

#include "hk/args/traffic.hpp"
#include "words.hpp"

namespace hk::traffic {

inline constexpr int kBlockThreads = 256;

HK_DEVICE int this_thread() {
  return __builtin_amdgcn_workgroup_id_x() * kBlockThreads + __builtin_amdgcn_workitem_id_x();
}

// 16 elements a lane: two lanes share a scale.
struct Cast {
  using Args = CastArgs;
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kLargestExponent = 8;  // of E4M3: 448 is 1.75 * 2^8

  HK_DEVICE static void run(const Args& args) {
    const u32 thread = this_thread();
    const u64 from = address(args.x) + u64(thread) * 32;
    const Floats parts[2] = {widened(load(from)), widened(load(from + 16))};
    f32 largest = 0;
    static_for<0, 16>(
        [&](auto i) { largest = __builtin_fmaxf(largest, __builtin_fabsf(parts[i / 8][i % 8])); });
    largest = __builtin_fmaxf(largest, of_lane(largest, this_lane().id ^ 1));
    const int biased = max(i32(bit_cast<u32>(largest) >> 23) - kLargestExponent, 0);
    const f32 factor = bit_cast<f32>(u32(254 - biased) << 23);
    Words packed;
    static_for<0, 4>([&](auto word) {
      f32 four[4];
      static_for<0, 4>([&](auto i) {
        constexpr int kAt = 4 * word.value + i.value;
        four[i] = __builtin_amdgcn_fmed3f(parts[kAt / 8][kAt % 8] * factor, -arch::kFp8Max,
                                          arch::kFp8Max);
      });
      const i32 low = __builtin_amdgcn_cvt_pk_fp8_f32(four[0], four[1], 0, false);
      packed[word.value] = __builtin_amdgcn_cvt_pk_fp8_f32(four[2], four[3], low, true);
    });
    store(address(args.out) + u64(thread) * 16, packed);
    if (thread % 2 == 0) store(address(args.scales) + thread / 2, (unsigned char)biased);
  }
};

// 8 lanes turn a row, 8 channels of either half each.
struct Rotary {
  using Args = RotaryArgs;
  static constexpr int kThreads = kBlockThreads;

  HK_DEVICE static void run(const Args& args) {
    const u32 row = this_thread() / 8, part = this_thread() % 8;
    const u64 at = u64(row) * 256 + part * 16;
    const u32 angle = row % args.tokens * 128 + part * 16;
    const Floats low = widened(load(address(args.x) + at));
    const Floats high = widened(load(address(args.x) + at + 128));
    const Floats cosine = widened(load(address(args.cosine) + angle));
    const Floats sine = widened(load(address(args.sine) + angle));
    store(address(args.out) + at, narrowed(low * cosine - high * sine));
    store(address(args.out) + at + 128, narrowed(high * cosine + low * sine));
  }
};

// A wave has a row: 4 times 8 channels a lane.
struct Norm {
  using Args = NormArgs;
  static constexpr int kThreads = kBlockThreads, kChannels = 2048, kParts = 4;
  static constexpr f32 kEpsilon = 1e-5f;

  HK_DEVICE static void run(const Args& args) {
    const Lane lane = this_lane();
    const u32 row = __builtin_amdgcn_workgroup_id_x() * (kThreads / arch::kLanes) + this_wave();
    const u64 row_at = u64(row) * kChannels * 2;
    const auto offset = [&](int part) { return u32((part * arch::kLanes + lane.id) * 16); };
    Floats sums[kParts];
    static_for<0, kParts>([&](auto part) {
      const u64 at = row_at + offset(part);
      const Floats residual = widened(load(address(args.residual) + at));
      sums[part] = kept(widened(load(address(args.x) + at)), u32(at / 2), args.drop) + residual;
    });
    f32 total = 0, squares = 0;
    static_for<0, kParts>([&](auto part) {
      store(address(args.sum) + row_at + offset(part), narrowed(sums[part]));
      static_for<0, 8>([&](auto i) {
        total += sums[part][i.value];
        squares += sums[part][i.value] * sums[part][i.value];
      });
    });
    const f32 mean = sum_over_lanes<0, 6>(total, lane.id) * (1.0f / kChannels);
    const f32 square = sum_over_lanes<0, 6>(squares, lane.id) * (1.0f / kChannels);
    const f32 factor = __builtin_amdgcn_rsqf(square - mean * mean + kEpsilon);
    static_for<0, kParts>([&](auto part) {
      const Floats weight = widened(load(address(args.weight) + offset(part)));
      const Floats bias = widened(load(address(args.bias) + offset(part)));
      store(address(args.out) + row_at + offset(part),
            narrowed((sums[part] - mean) * factor * weight + bias));
    });
  }

 private:
  // Elements `first` on: 0, or as much larger as keeps the mean.
  HK_DEVICE static Floats kept(Floats x, u32 first, u32 drop) {
    const f32 factor = 65536.0f / (65536.0f - f32(drop));
    static_for<0, 8>([&](auto i) {
      const u32 hash = (first + i.value) * 2654435761u;
      x[i.value] = hash >> 16 < drop ? 0.0f : x[i.value] * factor;
    });
    return x;
  }
};

}  // namespace hk::traffic
