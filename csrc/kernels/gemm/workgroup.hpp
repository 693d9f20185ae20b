// What one workgroup computes: which tile of C is its own, how much of the depth, and what becomes
// of the sums.
#pragma once

#include "epilogue.hpp"
#include "split.hpp"

namespace hk::gemm {

// Of a workgroup: a tile of C, and steps of its depth.
struct Part {
  i32 tile, split, row, column, first_step, steps;
};

template <class Shape>
HK_DEVICE Part part_of(const GemmArgs& args, i32 workgroup) {
  const i32 columns = ceil_div(args.n, Shape::kTileColumns),
            tiles = ceil_div(args.m, Shape::kTileRows) * columns;
  const i32 id = neighbours_on_one_xcd(workgroup, tiles * args.splits);
  const i32 tile = id / args.splits, split = id % args.splits;
  const i32 steps = ceil_div(args.k, Shape::kStep), share = ceil_div(steps, args.splits);
  const i32 first = split * share;
  return {tile,
          split,
          tile / columns * Shape::kTileRows,
          tile % columns * Shape::kTileColumns,
          first,
          min(share, steps - first)};
}

template <class Shape>
HK_DEVICE void gemm(const GemmArgs& args) {
  extern __attribute__((shared)) char lds[];
  const Part part = part_of<Shape>(args, __builtin_amdgcn_workgroup_id_x());
  const i32 wave = this_wave();
  const Lane lane = this_lane();
  GemmWave<Shape> product(args, part.row, part.column, part.first_step, shared_address(lds), wave,
                          lane);
  const i32 last = part.first_step + part.steps - 1;
  product.run(part.steps, ActivationStream<Shape>::depth_bytes(args) - last * Shape::kRowBytesA);

  if constexpr (Shape::kSplits)
    if (args.splits > 1 &&
        !sum_splits<Shape>(args, part.tile, part.split, wave, lane, product.result))
      return;
  const i32 row = part.row + wave % Shape::kRowWaves * Shape::kWaveRows;
  const i32 column = part.column + wave / Shape::kRowWaves * Shape::kWaveColumns;
  Epilogue<Shape>(args, row, column, lane).run(product.result);
}

}  // namespace hk::gemm
