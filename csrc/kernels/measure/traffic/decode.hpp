// Decode attention over a paged cache. A workgroup of 4 waves computes one key head's 8 query heads
// over a split of the keys, each wave over a quarter of that, 32 keys at a time:
//
//   scores^T [keys, heads] = K Q^T   K's rows as they lie in memory are the operand
//   weights = exp2(scores)           a lane's own 8 become its operand of the next product
//   out [heads, channels] += P V     V's 8 x 8 corners are transposed in registers
#pragma once

#include "hk/args/traffic.hpp"
#include "words.hpp"

namespace hk::traffic {

struct Decode {
  using Args = DecodeArgs;
  static constexpr int kThreads = 256, kWaves = 4;
  static constexpr int kKeys = 32, kBlockKeys = 16, kHeads = 8, kChannels = 128;
  using Sums = Vec<f32, 4>;
  using Operand = Vec<bf16, 8>;

  struct Tile {
    Words key[2][4], value[8];  // key: by block and 32 channels; value: by key of the lane
  };

  HK_DEVICE static void run(const Args& args) {
    const Lane lane = this_lane();
    const int wave = this_wave(), id = __builtin_amdgcn_workgroup_id_x();
    const int split = id % args.splits, head = id / args.splits % args.kv_heads,
              request = id / args.splits / args.kv_heads;
    const int tiles = args.keys / args.splits / kWaves / kKeys;
    const int first = (split * kWaves + wave) * tiles;
    Decode state(args, lane, request, head);
    state.load_tile(first);
    for (int tile = first; tile < first + tiles; ++tile) {
      const Tile now = state.next_;
      if (tile + 1 < first + tiles) state.load_tile(tile + 1);
      state.step(now);
    }
    state.finish(args, wave, id);
  }

 private:
  Lane lane_;
  u64 key_, value_;
  Constant<i32> table_;
  u32 row_bytes_, head_bytes_;
  f32 scale_;
  Operand query_[4];
  Tile next_;
  Sums out_[8] = {};  // channels 8 n + c in element c
  f32 weights_ = 0;

  HK_DEVICE Decode(const Args& args, Lane lane, int request, int head)
      : lane_(lane), key_(address(args.key)), value_(address(args.value)),
        table_(constant((const i32*)args.block_table) + request * (args.keys / kBlockKeys)),
        row_bytes_(args.kv_heads * kChannels * 2), head_bytes_(head * kChannels * 2),
        scale_(args.log2_scale) {
    const u64 query = address(args.query) +
                      u64((request * args.kv_heads + head) * kHeads + lane.id % kHeads) * 256 +
                      lane.id / 16 * 16;  // heads 8 to 15 are those again, and not stored
    static_for<0, 4>([&](auto i) { query_[i] = bit_cast<Operand>(load(query + 64 * i)); });
  }

  HK_DEVICE void load_tile(int tile) {
    const u64 block_bytes = u64(kBlockKeys) * row_bytes_;
    const u64 blocks[2] = {table_[2 * tile] * block_bytes, table_[2 * tile + 1] * block_bytes};
    const u32 key_at = lane_.id % 16 * row_bytes_ + head_bytes_ + lane_.id / 16 * 16;
    static_for<0, 8>([&](auto i) {
      next_.key[i / 4][i % 4] = load(key_ + blocks[i / 4] + key_at + i % 4 * 64);
    });
    static_for<0, 8>([&](auto i) {
      const u32 value_at =
          (lane_.id / 16 * 4 + i % 4) * row_bytes_ + head_bytes_ + lane_.id % 16 * 16;
      next_.value[i] = load(value_ + blocks[i / 4] + value_at);
    });
  }

  HK_DEVICE void step(const Tile& now) {
    Operand weights;
    static_for<0, 2>([&](auto block) {
      Sums scores = {};
      static_for<0, 4>([&](auto i) {
        scores = __builtin_amdgcn_mfma_f32_16x16x32_bf16(bit_cast<Operand>(now.key[block][i]),
                                                         query_[i], scores, 0, 0, 0);
      });
      static_for<0, 4>([&](auto i) {
        const f32 weight = __builtin_amdgcn_exp2f(scores[i.value] * scale_);
        weights_ += weight;
        weights[4 * block + i.value] = bf16(weight);
      });
    });
    static_for<0, 8>([&](auto c) {
      Operand column;  // of channel c of the lane's 8: its 8 keys
      static_for<0, 8>([&](auto i) { column[i.value] = bit_cast<Operand>(now.value[i])[c.value]; });
      out_[c] = __builtin_amdgcn_mfma_f32_16x16x32_bf16(weights, column, out_[c], 0, 0, 0);
    });
  }

  // The waves' results together.
  HK_DEVICE void finish(const Args& args, int wave, int id) {
    extern __attribute__((shared)) f32 lds[];
    constexpr int kOut = kHeads * kChannels, kWave = kOut + kHeads;
    const f32 sum = sum_over_lanes<4, 6>(weights_, lane_.id);
    if (lane_.id < kHeads) lds[wave * kWave + kOut + lane_.id] = sum;
    if (lane_.id < 32)
      static_for<0, 4>([&](auto i) {
        const int head = lane_.id / 16 * 4 + i.value;
        static_for<0, 8>([&](auto c) {
          lds[wave * kWave + head * kChannels + lane_.id % 16 * 8 + c.value] = out_[c][i.value];
        });
      });
    arch::wait<arch::kNoWait, 0>();
    barrier();
    const int thread = wave * arch::kLanes + lane_.id;
    const auto total = [&](int at) {
      f32 all = 0;
      static_for<0, kWaves>([&](auto w) { all += lds[w * kWave + at]; });
      return all;
    };
    static_for<0, kOut / kThreads>([&](auto i) {
      Global<f32>(args.out)[id * kOut + i * kThreads + thread] = total(i * kThreads + thread);
    });
    if (thread < kHeads) Global<f32>(args.sums)[id * kHeads + thread] = total(kOut + thread);
  }
};

}  // namespace hk::traffic
