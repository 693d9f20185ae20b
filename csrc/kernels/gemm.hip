// C = A B^T: A [m, k], B [n, k], C [m, n] in bf16 or fp16, accumulated in float32.
//
// A workgroup of 8 waves computes 256 x 256 of C; a wave 64 rows x 128 columns, as the transpose:
// a lane owns a row of C, and its columns are neighbours in memory. The depth comes in steps of 64.
//
//   start copying steps 0 and 1 to LDS
//   for each step:  wait for its copies | barrier
//                   4 times: load the next fragments, 8 matrix instructions on these
//                   barrier | start copying the step after next where this one was
//
// Any m, n, k: rows past m or n read zeros (descriptor bounds) and are not stored; depth past k is
// masked, in a last step of its own. Two stages and two barriers a step: simple and correct, the
// language's second customer; a fast GEMM is another schedule on the same tiles.
#include "hk/args/gemm.hpp"
#include "hk/hk.hpp"
#include "hk/kernel_info.hpp"

namespace hk {
namespace {

constexpr int kTile = 256, kStep = 64, kStages = 2;
constexpr int kRowWaves = 4, kColumnWaves = 2, kWaves = kRowWaves * kColumnWaves;
constexpr int kThreads = kWaves * arch::kLanes;
constexpr int kWaveRows = kTile / kRowWaves, kWaveColumns = kTile / kColumnWaves;

// What a wave copies of a matrix: 64 columns of the same rows at each step, step after step.
template <class Tile>
struct DepthStream {
  using Share = TileCopy<Tile, kWaves>;
  static constexpr u32 kStepBytes = kStep * sizeof(typename Tile::Element);

  Share share;
  RowSpan span;  // from the next step's first column to the end of the rows

  // Of the matrix [count, depth], rows from `first` on. The last row ends with the 16 bytes that
  // hold its end: the rest of it may not be there.
  HK_DEVICE DepthStream(const TensorRows<PackedRows>& rows, i32 count, i32 depth, i32 first, i32 wave, Lane lane)
      : share(wave, lane, rows.row_stride),
        span(rows.span(PackedRows{depth == 0 ? 0 : count}.place(first + share.first_row, Share::kRowsSpanned, 0))) {
    const u32 past_end = rows.row_stride - ceil_div(depth, 8) * 16;
    span.bytes -= clamp_scalar(past_end, span.bytes);
  }

  // Past the last column it goes on: what is copied then is not used.
  HK_DEVICE void copy_next(Tile dst) {
    copy(dst, span, share);
    span.base += kStepBytes;
    span.bytes -= clamp_scalar(span.bytes, kStepBytes);
    settle_scalar(span.base, span.bytes);
  }
};

template <class T>
class GemmWave {
 public:
  using Tile = SharedTile<T, kTile, kStep>;
  using Stream = DepthStream<Tile>;
  using Ring = TileRing<Tile, kStages>;
  static constexpr int kLdsBytes = 2 * Ring::kBytes;

  HK_DEVICE GemmWave(const Stream& a, const Stream& b, u32 lds, i32 wave, Lane lane)
      : a_{a, {lds}, Reader::of(lane, wave % kRowWaves * kWaveRows)},
        b_{b, {lds + Ring::kBytes}, Reader::of(lane, wave / kRowWaves * kWaveColumns)},
        lane_(lane) {
    each_block([&](auto column, auto row) { fill(result_.block[column][row], 0); });
  }

  // Copies of steps that do not exist stay in flight: the end of the program waits for them (ISA
  // guide, S_ENDPGM).
  HK_DEVICE void run(i32 depth) {
    start_copies(a_.ring.tile(0), b_.ring.tile(0));
    start_copies(a_.ring.tile(1), b_.ring.tile(1));
    static_assert(kStages == 2);
    for (; depth >= kStep; depth -= kStep) step<false>(depth);
    if (depth > 0) step<true>(depth);
    wait_copies<0>();  // those past the last step: the LDS is given away when the waves end
  }

  // To the wave's part of C: `rows` x `columns` of it exist.
  HK_DEVICE void store(u64 base, u32 row_bytes, i32 rows, i32 columns) const {
    each_block([&](auto column, auto row) {
      constexpr int kFirst = Mma<T>::kCols * row.value;
      const u32 left = clamp_scalar(rows - kFirst, Mma<T>::kCols);
      const BoundedView view(base + wide_mul(kFirst, row_bytes), left * row_bytes);
      store_transposed_below<T>(view, row_bytes, Mma<T>::kRows * column.value, columns,
                                result_.block[column][row], lane_);
    });
  }

 private:
  using Reader = RowReader<Tile>;
  static constexpr int kRowBlocks = kWaveRows / Mma<T>::kCols;
  static constexpr int kColumnBlocks = kWaveColumns / Mma<T>::kRows;
  static constexpr int kParts = kStep / Mma<T>::kDepth;
  static constexpr int kReads = kRowBlocks + kColumnBlocks;   // LDS reads of a part
  static constexpr int kCopies = 2 * Stream::Share::kCopies;  // of a step

  struct Operand {
    Stream stream;
    Ring ring;
    Reader reader;  // of the wave's rows in a tile at LDS byte 0
  };
  // One part of a step: operand columns (rows of C) and operand rows (columns of C).
  struct Fragments {
    Fragment<T> a[kRowBlocks], b[kColumnBlocks];
  };

  Operand a_, b_;
  Lane lane_;
  ResultTile<kWaveColumns, kWaveRows> result_;  // C^T

  template <class F>
  HK_DEVICE static void each_block(F&& body) {
    static_for<0, kColumnBlocks>(
        [&](auto column) { static_for<0, kRowBlocks>([&](auto row) { body(column, row); }); });
  }

  HK_DEVICE void start_copies(Tile a, Tile b) {
    a_.stream.copy_next(a);
    b_.stream.copy_next(b);
  }

  template <bool kMasked>
  HK_DEVICE void step(i32 depth) {
    wait_copies<kCopies>();
    barrier();
    const Tile a = a_.ring.tile(), b = b_.ring.tile();
    const Reader a_rows = a_.reader.at(a), b_rows = b_.reader.at(b);
    Fragments parts[2];
    load_part<0>(parts[0], a_rows, b_rows);
    static_for<0, kParts>([&](auto part) {
      constexpr bool kMore = part + 1 < kParts;
      Fragments& now = parts[part % 2];
      if constexpr (kMore) load_part<part + 1>(parts[(part + 1) % 2], a_rows, b_rows);
      wait_lds<kMore ? kReads : 0>(now.a, now.b);
      if constexpr (kMasked) mask_part(now, depth - Mma<T>::kDepth * part);
      each_block([&](auto column, auto row) {
        Block& dst = result_.block[column][row];
        mma(dst, now.b[column], now.a[row], dst);
      });
      fence_schedule();  // the compiler would gather all parts behind the last wait
    });
    barrier();
    start_copies(a, b);
    a_.ring.advance();
    b_.ring.advance();
  }

  template <int Part>
  HK_DEVICE static void load_part(Fragments& dst, const Reader& a, const Reader& b) {
    static_for<0, kRowBlocks>([&](auto i) { load<i.value, Part>(dst.a[i], a); });
    static_for<0, kColumnBlocks>([&](auto i) { load<i.value, Part>(dst.b[i], b); });
  }

  HK_DEVICE void mask_part(Fragments& part, i32 depth) const {
    for (Fragment<T>& fragment : part.a) keep_below(fragment, fragment, depth, lane_);
    for (Fragment<T>& fragment : part.b) keep_below(fragment, fragment, depth, lane_);
  }
};

template <class T>
HK_DEVICE void gemm(const GemmArgs& args) {
  using Wave = GemmWave<T>;
  extern __attribute__((shared)) char lds[];
  static_assert(Wave::kLdsBytes <= arch::kLdsBytes);
  const i32 columns = ceil_div(args.n, kTile), tiles = ceil_div(args.m, kTile) * columns;
  const i32 id = neighbours_on_one_xcd(__builtin_amdgcn_workgroup_id_x(), tiles);
  const i32 first_row = id / columns * kTile, first_column = id % columns * kTile;
  const i32 wave = this_wave();
  const Lane lane = this_lane();

  const auto stream = [&](const void* data, i64 row, i32 count, i32 first) {
    const TensorRows<PackedRows> rows = {address(data), 0, u32(row * sizeof(T))};
    return typename Wave::Stream(rows, count, args.k, first, wave, lane);
  };
  Wave product(stream(args.a, args.a_row, args.m, first_row), stream(args.b, args.b_row, args.n, first_column),
               shared_address(lds), wave, lane);
  product.run(args.k);

  const i32 row = first_row + wave % kRowWaves * kWaveRows;
  const i32 column = first_column + wave / kRowWaves * kWaveColumns;
  const u32 row_bytes = args.c_row * sizeof(T);
  product.store(address(args.c) + wide_mul(row, row_bytes) + column * sizeof(T), row_bytes,
                args.m - row, args.n - column);
}

// What the launch must know (hk_backend/kernels/toolchain/build.py).
template <class T>
constexpr KernelInfo<GemmFacts> info(const GemmFacts& facts) {
  return {kTile, kTile, kStep, GemmWave<T>::kLdsBytes, 2 * kWaveRows * kWaveColumns * kStep,
          "ceil_div(m, tile_rows) * ceil_div(n, tile_columns)", "gemm", facts};
}
}  // namespace
}  // namespace hk

HK_KERNEL(hk::kThreads, 2) gemm_bf16(hk::GemmArgs args) { hk::gemm<hk::bf16>(args); }
HK_KERNEL(hk::kThreads, 2) gemm_f16(hk::GemmArgs args) { hk::gemm<hk::f16>(args); }

HK_KERNEL_INFO(gemm_bf16, hk::info<hk::bf16>({"bf16", "bf16", "bf16"}));
HK_KERNEL_INFO(gemm_f16, hk::info<hk::f16>({"f16", "f16", "f16"}));
