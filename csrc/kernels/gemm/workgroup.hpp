// What one workgroup computes: which tile of C is its own, its waves, and where their results go.
#pragma once

#include "epilogue.hpp"
#include "wave.hpp"

namespace hk::gemm {

template <class Shape, class Epilogue>
HK_DEVICE void gemm(const GemmArgs& args, const Epilogue& epilogue) {
  using Size = Sizes<Shape>;
  using Wave = GemmWave<Shape>;
  using Out = typename Epilogue::Output;
  extern __attribute__((shared)) char lds[];
  const i32 columns = ceil_div(args.n, Shape::kTileColumns),
            tiles = ceil_div(args.m, Shape::kTileRows) * columns;
  const i32 id = neighbours_on_one_xcd(__builtin_amdgcn_workgroup_id_x(), tiles);
  const i32 first_row = id / columns * Shape::kTileRows,
            first_column = id % columns * Shape::kTileColumns;
  const i32 wave = this_wave();
  const Lane lane = this_lane();

  const auto rows_of = [](const void* data, i64 row_bytes) {
    return TensorRows<PackedRows>{address(data), 0, u32(row_bytes)};
  };
  const typename Wave::StreamA a(rows_of(args.a, args.a_row * sizeof(typename Shape::A)), args.m,
                                 args.k, first_row, wave, lane);
  const typename Wave::StreamB b(rows_of(args.b, args.b_row * sizeof(typename Shape::B)), args.n,
                                 args.k, first_column, wave, lane);
  Wave product(a, b, shared_address(lds), wave, lane);
  product.run(args.k);

  const i32 row = first_row + wave % Shape::kRowWaves * Size::kWaveRows;
  const i32 column = first_column + wave / Shape::kRowWaves * Size::kWaveColumns;
  const u32 row_bytes = args.c_row * sizeof(Out);
  const u64 base = address(args.c) + wide_mul(row, row_bytes) + column * sizeof(Out);
  product.each_result([&](Block block, auto down, auto right) {
    epilogue.apply(block, row + down, column + right, lane);
    const u32 left = clamp_scalar(args.m - row - down, Mma<typename Shape::A>::kCols);
    const BoundedView view(base + wide_mul(down, row_bytes), left * row_bytes);
    store_transposed_below<Out>(view, row_bytes, right, args.n - column, block, lane);
  });
}

}  // namespace hk::gemm
