// The tiles of the operands on their way from memory to LDS, as one wave sees them.
#pragma once

#include "shape.hpp"

namespace hk::gemm {

inline constexpr int kScaleWordDepth = 256;  // of the scales that a lane has in a word: MX formats

// The step after: what is left of a span without its first `bytes`.
HK_DEVICE void advance(RowSpan& span, u32 bytes) {
  span.base += bytes;
  span.bytes -= clamp_scalar(span.bytes, bytes);
  pin_scalar(span.base, span.bytes);
}

// Starts the `I`th of this wave's copies of a step; after the last one comes `advance`.
template <int I, class Stream>
HK_DEVICE void copy_piece(typename Stream::Tile dst, const Stream& stream) {
  // The instruction adds its offset on both sides: neighbours share the address in LDS.
  constexpr int kOffset = I % Stream::kCopiesOfAddress * Stream::kCopyStride;
  const u32 to = dst.base + stream.destination + I * Stream::kCopyStride - kOffset;
  const BoundedView src = stream.span;
  __builtin_amdgcn_raw_ptr_buffer_load_lds(src.descriptor,
                                           (__attribute__((address_space(3))) void*)to,
                                           arch::kCopyBytes, stream.source[I], 0, kOffset, 0);
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
// where the weights have zeros. The pieces of a part take turns between the halves of the wave, or
// each half has its own side by side.
template <bool SideBySide, int Rows, int Words>
HK_DEVICE void mask_past(Line<Words> (&part)[Rows], i32 bytes, Lane lane) {
  constexpr int kPieces = Line<Words>::kPieces, kStride = SideBySide ? 16 : 32;
  const i32 kept = bytes - lane.half * (SideBySide ? kPieces * 16 : 16);
  for (auto& line : part)
    static_for<0, kPieces>([&](auto piece) {
      keep<32 * kPieces>(line.pieces[piece].words, kept - kStride * piece, bytes);
    });
}

// Starts the `Read`th read of a line of block `Block` in part `Part`.
template <int Block, int Part, int Read, int Words, class Reader>
HK_DEVICE void load_line(Line<Words>& dst, const Reader& src) {
  constexpr int kPieces = Line<Words>::kPieces;
  if constexpr (Read < kPieces)
    src.template read<Block, Part * kPieces + Read>(dst.pieces[Read]);
  else
    src.template read_rest<Block, Part>(dst.rest[0]);
}

// Bytes of a row of the activations.
template <class Shape>
HK_DEVICE i32 depth_bytes(const GemmArgs& args) {
  return args.k * kElementBits<typename Shape::Format::A> / 8;
}

// A step's columns of a tile's rows of the activations, step after step.
template <class Shape, bool Packed = Shape::Format::kPackedA>
struct ActivationStream : TileCopy<typename Shape::TileA, Shape::kCopyingWaves> {
  using Tile = typename Shape::TileA;
  using Share = TileCopy<Tile, Shape::kCopyingWaves>;
  static constexpr int kCopyStride = Tile::Layout::kBlockStride, kCopiesOfAddress = 1;

  RowSpan span;  // from the next step's first byte to the end of the rows

  // Rows from `first` on, bytes from `start` on. The last row ends with the 16 bytes that hold its
  // end: the rest of it may not be there.
  HK_DEVICE ActivationStream(const GemmArgs& args, i32 first, u32 start, i32 wave, Lane lane)
      : Share(wave, lane, {row_bytes(args)}), span{} {
    const i32 row = first + this->first_row, rows = Share::kRowsSpanned;
    const u32 count = clamp_scalar((args.k == 0 ? 0 : args.m) - row, rows),
              used = ceil_div(depth_bytes<Shape>(args), 16) * 16;
    span.base = address(args.a) + wide_mul(row, row_bytes(args)) + start;
    span.bytes = count * row_bytes(args);
    span.bytes -= clamp_scalar(row_bytes(args) - used + start, span.bytes);
  }

  HK_DEVICE static u32 row_bytes(const GemmArgs& args) {
    return args.a_row * (kElementBits<typename Shape::Format::A> / 8);
  }

  // Past the last column it goes on: what is copied then is not used.
  HK_DEVICE void advance() { gemm::advance(span, Shape::kNextStep * Shape::kRowBytesA); }
};

// Bytes of a packed row of `Element`s.
template <class Shape, class Element>
HK_DEVICE u32 packed_row_bytes(const GemmArgs& args) {
  constexpr int kDepth = is_mx(Shape::Format::kScales) ? kScaleWordDepth : Shape::kStep;
  return ceil_div(args.k, kDepth) * (kDepth * kElementBits<Element> / 8);
}

// A step's columns of a tile's packed rows, which lie in memory as they will in LDS: 16 rows after
// 16 rows.
template <class Shape, class Tile_>
struct PackedStream {
  using Tile = Tile_;
  static constexpr int kCopies = Tile::kBytes / kCopyBlock / Shape::kCopyingWaves;
  static constexpr int kCopyStride = kCopyBlock, kCopiesOfAddress = 4;
  static constexpr int kStepBytes = Tile::kBytes / (Tile::kRows / 16);  // of 16 rows
  static_assert(kCopies * kCopyBlock * Shape::kCopyingWaves == Tile::kBytes);

  u32 destination;      // byte in the tile, wave-uniform
  u32 source[kCopies];  // byte from the span's first, of this lane, less a copy's offset
  RowSpan span;         // from the next step's first byte to the end of the rows

  // Rows from `first` on, of `rows`; bytes of each from `start` on.
  HK_DEVICE PackedStream(const void* packed, i32 rows, u32 row_bytes, i32 first, u32 start,
                         i32 wave, Lane lane)
      : destination(wave * kCopies * kCopyBlock), span{} {
    const u32 group_bytes = 16 * row_bytes;
    const u32 stride = max(group_bytes, kStepBytes);  // rows of no depth have none: no wrap below
    const i32 skipped = wave * kCopies * kCopyBlock / kStepBytes, group = first / 16 + skipped;
    const u32 groups = clamp_scalar(ceil_div(rows, 16) - group,
                                    ceil_div(kCopies * kCopyBlock, kStepBytes) + kStraddles);
    span.base = address(packed) + wide_mul(group, group_bytes) + 16 * start;
    span.bytes = groups * group_bytes;
    span.bytes -= clamp_scalar(16 * start, span.bytes);
    static_for<0, kCopies>([&](auto i) {
      const int block = wave * kCopies + i.value;
      if constexpr (kStraddles) {
        const int byte = block * kCopyBlock + lane.id * 16;
        source[i] = (byte / kStepBytes - skipped) * stride + byte % kStepBytes;
      } else {
        constexpr int kPerGroup = kStepBytes / kCopyBlock;
        source[i] =
            (block / kPerGroup - skipped) * stride + block % kPerGroup * kCopyBlock + lane.id * 16;
      }
      source[i] -= i % kCopiesOfAddress * kCopyStride;
    });
  }

  HK_DEVICE void advance() { gemm::advance(span, Shape::kNextStep * kStepBytes); }

 private:
  // Whether a copy's lanes may fetch from two groups of 16 rows.
  static constexpr bool kStraddles = kStepBytes % kCopyBlock != 0;
};

template <class Shape>
struct WeightStream : PackedStream<Shape, typename Shape::TileW> {
  HK_DEVICE WeightStream(const GemmArgs& args, i32 first, u32 start, i32 wave, Lane lane)
      : PackedStream<Shape, typename Shape::TileW>(
            args.b, args.n, packed_row_bytes<Shape, typename Shape::Format::W>(args), first, start,
            wave, lane) {}
};

// Activations in an MX format are packed as weights are.
template <class Shape>
struct ActivationStream<Shape, true> : PackedStream<Shape, typename Shape::TileA> {
  HK_DEVICE ActivationStream(const GemmArgs& args, i32 first, u32 start, i32 wave, Lane lane)
      : PackedStream<Shape, typename Shape::TileA>(
            args.a, args.m, packed_row_bytes<Shape, typename Shape::Format::A>(args), first, start,
            wave, lane) {}
};

}  // namespace hk::gemm
