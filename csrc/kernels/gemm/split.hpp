// The depth of a tile, split over workgroups: the last one to arrive sums what all have left in
// memory, in the order of the splits, so that the result does not depend on who was last.
#pragma once

#include "hk/ops/arrive.hpp"
#include "shape.hpp"

namespace hk::gemm {

// Leaves this split's sums in memory, if the wave has some (`there`). Of the last split to arrive
// `result` are then the sums of all, and the return value true.
template <class Shape, class Result>
HK_DEVICE bool sum_splits(const GemmArgs& args, i32 tile, i32 split, bool there, i32 wave,
                          Lane lane, Result& result) {
  constexpr int kAtOnce = 4;  // splits that are read at once: a memory latency for all of them
  constexpr u32 kBlockBytes = 32 * 32 * sizeof(f32);
  constexpr int kBlocks = Result::kRowBlocks * Result::kColBlocks;
  constexpr u32 kTileBytes = Shape::kTileRows * Shape::kTileColumns * sizeof(f32);
  extern __attribute__((shared)) char lds[];
  const u64 own = address(args.partial) + wide_mul(tile * args.splits, kTileBytes) +
                  wave * kBlocks * kBlockBytes;
  const auto each = [&](u64 base, auto&& body) {
    const BoundedView view(base, there ? kBlocks * kBlockBytes : 0);
    static_for<0, kBlocks>([&](auto block) {
      static_for<0, 4>(
          [&](auto quad) { body(view, block, quad, (block * 4 + quad) * 1024 + lane.id * 16); });
      fence_schedule();  // all blocks' loads at once would need too many registers
    });
  };
  each(own + wide_mul(split, kTileBytes), [&](BoundedView view, auto block, auto quad, u32 offset) {
    const Block& sums = result.block[block / Result::kColBlocks][block % Result::kColBlocks];
    const Vec<f32, 4> four = {sums[4 * quad], sums[4 * quad + 1], sums[4 * quad + 2],
                              sums[4 * quad + 3]};
    __builtin_amdgcn_raw_buffer_store_b128(bit_cast<Vec<u32, 4>>(four), view.descriptor, offset, 0,
                                           0);
  });
  u32* arrived = args.arrived + tile;
  if (!arrives_last(arrived, args.splits, shared_address(lds), wave, lane)) return false;
  if (wave == 0 && lane.id == 0) *arrived = 0;
  static_for<0, kBlocks>([&](auto block) {
    Block& sums = result.block[block / Result::kColBlocks][block % Result::kColBlocks];
    fill(sums, 0);
    for (i32 i = 0; i < args.splits; i += kAtOnce) {
      Vec<u32, 4> left[kAtOnce][4];
      static_for<0, kAtOnce>([&](auto j) {
        // past the last split: no bytes, which read as zeros
        const u32 bytes = there && i + j < args.splits ? kBlocks * kBlockBytes : 0;
        const BoundedView view(own + wide_mul(i + j, kTileBytes), bytes);
        static_for<0, 4>([&](auto quad) {
          left[j][quad] = load_words<4>(view, (block * 4 + quad) * 1024 + lane.id * 16);
        });
      });
      static_for<0, kAtOnce>([&](auto j) {
        static_for<0, 4>([&](auto quad) {
          const auto four = bit_cast<Vec<f32, 4>>(left[j][quad]);
          static_for<0, 4>([&](auto of) { sums[4 * quad + of] += four[of.value]; });
        });
      });
    }
  });
  return true;
}

}  // namespace hk::gemm
