// The tiles of the operands on their way from memory to LDS, as one wave sees them.
#pragma once

#include "shape.hpp"

namespace hk::gemm {

// The step after: what is left of a span without its first `bytes`.
HK_DEVICE void advance(RowSpan& span, u32 bytes) {
  span.base += bytes;
  span.bytes -= clamp_scalar(span.bytes, bytes);
  pin_scalar(span.base, span.bytes);
}

// Starts the `I`th of this wave's copies of a step; after the last one comes `advance`.
template <int I, class Stream>
HK_DEVICE void copy_piece(typename Stream::Tile dst, const Stream& stream) {
  const u32 to = dst.base + stream.share.destination + I * Stream::Tile::Layout::kBlockStride;
  const BoundedView src = stream.span;
  __builtin_amdgcn_raw_ptr_buffer_load_lds(src.descriptor,
                                           (__attribute__((address_space(3))) void*)to,
                                           arch::kCopyBytes, stream.share.source[I], 0, 0, 0);
}

// Keeps the first `kept` bytes of a piece's words, a count of each lane, and clears those behind
// them. It does nothing where all of the part is kept: `bytes` of `Whole`. This is assembly that
// jumps, because reads in flight would cross a branch of the compiler's. Matrix instructions may
// read the words two wait states later.
template <int Whole>
HK_DEVICE void keep(Vec<u32, 4>& words, i32 kept, i32 bytes) {
#define HK_KEEP(word, before)                                                         \
  "v_add_u32_e32 %4, " before                                                         \
  ", %5\n\tv_med3_i32 %4, %4, 0, 4\n\t"                                               \
  "v_lshlrev_b32_e32 %4, 2, %4\n\tv_sub_u32_e32 %4, 16, %4\n\t"                       \
  "v_lshlrev_b32_e32 " word ", %4, " word "\n\tv_lshlrev_b32_e32 " word ", %4, " word \
  "\n\tv_lshrrev_b32_e32 " word ", %4, " word "\n\tv_lshrrev_b32_e32 " word ", %4, " word "\n\t"
  u32 left, w0 = words[0], w1 = words[1], w2 = words[2], w3 = words[3];
  asm volatile("s_cmp_ge_i32 %6, %7\n\ts_cbranch_scc1 .Lwhole%=\n\t" HK_KEEP("%0", "0") HK_KEEP(
                   "%1", "-4") HK_KEEP("%2", "-8") HK_KEEP("%3", "-12") "s_nop 1\n.Lwhole%=:"
               : "+v"(w0), "+v"(w1), "+v"(w2), "+v"(w3), "=&v"(left)
               : "v"(kept), "s"(bytes), "n"(Whole)
               : "scc");
#undef HK_KEEP
  words = {w0, w1, w2, w3};
}

// Zeros in what a lane has read of A from `bytes` on: past the end of the rows may be anything,
// where the weights have zeros.
template <int Rows, int Pieces>
HK_DEVICE void mask_past(Piece (&part)[Rows][Pieces], i32 bytes, Lane lane) {
  const i32 kept = bytes - lane.half * 16;
  for (auto& pieces : part)
    static_for<0, Pieces>(
        [&](auto piece) { keep<32 * Pieces>(pieces[piece].words, kept - 32 * piece, bytes); });
}

// A step's columns of a tile's rows of the activations, step after step.
template <class Shape>
struct ActivationStream {
  using Tile = typename Shape::TileA;
  using Share = TileCopy<Tile, Shape::kCopyingWaves>;
  static constexpr int kCopies = Share::kCopies;

  Share share;
  RowSpan span;  // from the next step's first byte to the end of the rows

  // Rows from `first` on, bytes from `start` on. The last row ends with the 16 bytes that hold its
  // end: the rest of it may not be there.
  HK_DEVICE ActivationStream(const GemmArgs& args, i32 first, u32 start, i32 wave, Lane lane)
      : share(wave, lane, {row_bytes(args)}), span{} {
    const i32 row = first + share.first_row, rows = Share::kRowsSpanned;
    const u32 count = clamp_scalar((args.k == 0 ? 0 : args.m) - row, rows),
              used = ceil_div(depth_bytes(args), 16) * 16;
    span.base = address(args.a) + wide_mul(row, row_bytes(args)) + start;
    span.bytes = count * row_bytes(args);
    span.bytes -= clamp_scalar(row_bytes(args) - used + start, span.bytes);
  }

  HK_DEVICE static u32 row_bytes(const GemmArgs& args) {
    return args.a_row * kElementBytes<typename Shape::Format::A>;
  }
  HK_DEVICE static i32 depth_bytes(const GemmArgs& args) {
    return args.k * kElementBytes<typename Shape::Format::A>;
  }

  // Past the last column it goes on: what is copied then is not used.
  HK_DEVICE void advance() { gemm::advance(span, Shape::kNextStep * Shape::kRowBytesA); }
};

template <class Shape>
HK_DEVICE u32 packed_row_bytes(const GemmArgs& args) {
  return ceil_div(args.k, Shape::kStep) * Shape::kStepBytes;
}

// The same of the weights, which lie in memory as they will in LDS: 16 rows after 16 rows.
template <class Shape>
struct WeightStream {
  using Tile = typename Shape::TileW;
  using Share = TileCopy<Tile, Shape::kCopyingWaves>;
  static constexpr int kCopies = Share::kCopies;

  Share share;
  RowSpan span;

  HK_DEVICE WeightStream(const GemmArgs& args, i32 first, u32 start, i32 wave, Lane lane)
      : share(wave, lane, {16, 256}), span{} {
    const u32 group_bytes = 16 * packed_row_bytes<Shape>(args);
    const i32 group = (first + share.first_row) / 16;
    const u32 groups =
        clamp_scalar(ceil_div(args.n, 16) - group, ceil_div(Share::kRowsSpanned, 16));
    span.base = address(args.b) + wide_mul(group, group_bytes) + 16 * start;
    span.bytes = groups * group_bytes;
    span.bytes -= clamp_scalar(16 * start, span.bytes);
    static_for<0, kCopies>([&](auto i) {
      const int block = wave * kCopies + i.value;
      share.source[i] = (block / Share::kPer16 - share.first_row / 16) * group_bytes +
                        block % Share::kPer16 * kCopyBlock + lane.id * 16;
    });
  }

  HK_DEVICE void advance() { gemm::advance(span, 16 * Shape::kStepBytes); }
};

}  // namespace hk::gemm
