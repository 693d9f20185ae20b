// The work of one workgroup: its tile of C, its share of the depth, and the way of the sums.
#pragma once

#include "deep_wave.hpp"
#include "epilogue.hpp"
#include "split.hpp"
#include "wave.hpp"

namespace hk::gemm {

// A workgroup's tile of C, and its steps of the depth.
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

// Stores a wave's sums, from a row and column of C on; does nothing if there are none.
template <class Shape, class Stored, class Sums>
HK_DEVICE void finish(const GemmArgs& args, const Part& part, i32 row, i32 column, bool there,
                      i32 wave, Lane lane, Sums& sums) {
  if constexpr (Shape::kSplits)
    if (args.splits > 1 && !sum_splits<Shape>(args, part.tile, part.split, there, wave, lane, sums))
      return;
  Epilogue<Stored>(args, there ? row : args.m, column, lane).run(sums);
}

// Waves that have a part of the tile each.
template <class Shape>
HK_DEVICE void multiply_wide(const GemmArgs& args, const Part& part, u32 lds, i32 wave, Lane lane) {
  GemmWave<Shape> product(args, part.row, part.column, part.first_step, lds, wave, lane);
  const i32 last = part.first_step + part.steps - 1;
  product.run(part.steps, depth_bytes<Shape>(args) - last * Shape::kRowBytesA);
  const i32 row = part.row + Shape::row_of(wave), column = part.column + Shape::column_of(wave);
  finish<Shape, Shape>(args, part, row, column, true, wave, lane, product.result);
}

// Waves that have all of the tile each, and share its depth.
template <class Shape>
HK_DEVICE void multiply_deep(const GemmArgs& args, const Part& part, u32 lds, i32 wave, Lane lane) {
  DeepWave<Shape> product(args, part.row, part.column, part.first_step, part.steps,
                          lds + wave * Shape::kWaveBytes, wave, lane);
  product.run();
  using Own = OwnShape<typename Shape::Format, 32 * Shape::kOwnBlocks, 32>;
  ResultTile<Own::kWaveColumns, Own::kWaveRows> own;
  sum_waves<Shape>(product.result, own, lds, wave, lane);
  constexpr int kRowBlocks = Shape::kWaveRows / 32;
  const i32 first = wave * Shape::kOwnBlocks;
  finish<Shape, Own>(args, part, part.row + first % kRowBlocks * 32,
                     part.column + first / kRowBlocks * 32, first < Shape::kBlocks, wave, lane,
                     own);
}

template <class Shape>
HK_DEVICE void gemm(GemmArgs args) {
  extern __attribute__((shared)) char lds[];
  const Part part = part_of<Shape>(args, __builtin_amdgcn_workgroup_id_x());
  // the epilogue's, loaded with the rest: behind the loop they would take a latency of their own
  pin_scalar(args.c, args.c_row, args.c_type, args.a_scale, args.b_scale, args.bias);
  if constexpr (Shape::kDeep)
    multiply_deep<Shape>(args, part, shared_address(lds), this_wave(), this_lane());
  else
    multiply_wide<Shape>(args, part, shared_address(lds), this_wave(), this_lane());
}

}  // namespace hk::gemm
