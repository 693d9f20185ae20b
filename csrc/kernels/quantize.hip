// FP8 codes of activations: x [m, k] divided by its scales, saturated, rounded to e4m3fn. A scale
// belongs to a row (token), to 128 columns of a row (block), or is given. See
// hk/args/quantize_fp8.hpp for the argument, quantize/encode.hpp for the arithmetic, which gives
// the bits of the host's.
//
// Memory bounds it: 2 or 4 bytes read and 1 written for an element. Each byte of x is read once.
//
// token: a workgroup has a row, and keeps it in registers.
//   start loading all of it, 16 bytes a lane at a time
//   the largest magnitude of the lane, of the wave, of the workgroup through LDS | barrier
//   scale | encode and store piece by piece
//   What is longer than the registers hold is read again for its codes, from a cache at best.
//
// block, given: a workgroup has a part of a row, 16 bytes a lane.
//   load | the largest magnitude of the 16 or 32 lanes of a block | scale | encode, store
//
// Choices:
//   - Eight waves on each SIMD, and no loop: others load while one computes. Of a longer row a lane
//     has more pieces; a very long one has a workgroup of 16 waves instead of 4 (token_long).
//     Several rows for a workgroup are no faster, and one after the other when they are few.
//   - Magnitudes are compared as integers, two 16-bit ones in an instruction, and NaN comes out on
//     top.
//   - Two quotients by five packed instructions and a reciprocal of the scale, exactly
//     (encode.hpp).
//   - NaN is looked for once in a piece, and handled beside the straight way.
//   - Rows whose pieces are not aligned take another way through the same code, by elements.
//   - Template arguments: the type of x and what a scale belongs to. At run time: sizes, strides,
//     the groups of given scales.
#include "hk/kernel_info.hpp"
#include "hk/table.hpp"
#include "quantize/encode.hpp"
#include "quantize/largest.hpp"

HK_ARCHES(gfx950);

namespace hk::quantize {

struct Facts {
  char x[16], scale[16];
};

HK_DEVICE u32 this_thread() { return __builtin_amdgcn_workitem_id_x(); }

// A row for each workgroup.
template <class T, int Waves>
struct Token {
  static constexpr int kWaves = Waves, kThreads = Waves * arch::kLanes;
  static constexpr int kPieces = 8;  // that a lane keeps
  static constexpr int kStep = kThreads * Piece<T>::kElements;
  static constexpr int kColumns = kPieces * kStep;  // that it keeps
  static constexpr u32 kLdsBytes = Waves * sizeof(u32);
  static constexpr char kGrid[] = "quantize_fp8_rows";

  template <bool Whole>
  HK_DEVICE static void run(const QuantizeFp8Args& args) {
    extern __attribute__((shared)) u32 lds[];
    const u32 row = __builtin_amdgcn_workgroup_id_x(), first = this_thread() * Piece<T>::kElements;
    const Row<T, Whole> memory(args, row);
    Piece<T> kept[kPieces];
    const auto each_kept = [&](auto&& body) HK_INLINED {
      static_for<0, kPieces>([&](auto i) HK_INLINED {
        if (i == 0 || i * kStep < args.k) body(kept[i], first + i * kStep);
      });
    };
    each_kept([&](Piece<T>& piece, u32 column) HK_INLINED { piece = memory.load(column); });
    fence_schedule();  // one wait: the compiler would have one for each that may be missing
    if constexpr (Row<T, Whole>::kInFlight) arch::wait<0, arch::kNoWait>();
    fence_schedule();
    Largest<T> largest;
    each_kept([&](Piece<T>& piece, u32) HK_INLINED { largest.take(piece); });
    for (i32 step = kColumns; step < args.k; step += kStep) largest.take(memory.load(first + step));
    largest.template take_lanes<64>();
    largest.template take_waves<Waves>((Shared<u32>)lds, this_wave(), this_lane());
    const f32 scale = scale_of(largest.value());
    if (this_thread() == 0) ((f32 __attribute__((address_space(1)))*)args.scales)[row] = scale;
    const Multiplied unscale(scale);
    each_kept([&](Piece<T>& piece, u32 column)
                  HK_INLINED { memory.store(column, encode(piece, unscale)); });
    for (i32 step = kColumns; step < args.k; step += kStep)
      memory.store(first + step, encode(memory.load(first + step), unscale));
  }
};

// Some columns of a row for each workgroup.
template <class T, class Scale>
struct Part {
  static constexpr int kWaves = 4, kThreads = kWaves * arch::kLanes;
  static constexpr int kColumns = kThreads * Piece<T>::kElements;
  static constexpr u32 kLdsBytes = 0;
  static constexpr char kGrid[] = "quantize_fp8_tiles";

  template <bool Whole>
  HK_DEVICE static void run(const QuantizeFp8Args& args) {
    const u32 row = __builtin_amdgcn_workgroup_id_x();
    const u32 column =
        __builtin_amdgcn_workgroup_id_y() * kColumns + this_thread() * Piece<T>::kElements;
    const Row<T, Whole> memory(args, row);
    const Piece<T> piece = memory.load(column);
    const typename Scale::Unscale unscale(Scale::of(piece, args, row, column));
    memory.store(column, encode(piece, unscale));
  }
};

// A row of scales, `count` of them.
HK_DEVICE BoundedView scales_of(const QuantizeFp8Args& args, u32 row, u32 count) {
  return {address(args.scales) + wide_mul(row, args.scale_row) * sizeof(f32),
          ((count - 1) * args.scale_column + 1) * u32(sizeof(f32))};
}

// The scale of a lane's piece of a row: computed of 128 columns, and stored.
struct BlockScale {
  using Unscale = Divided;
  static constexpr u32 kBlock = 128;

  template <class T>
  HK_DEVICE static f32 of(const Piece<T>& piece, const QuantizeFp8Args& args, u32 row, u32 column) {
    constexpr int kLanes = kBlock / Piece<T>::kElements;
    Largest<T> largest;
    largest.take(piece);
    largest.template take_lanes<kLanes>();
    const f32 scale = scale_of(largest.value());
    if (this_lane().id % kLanes == 0)
      __builtin_amdgcn_raw_buffer_store_b32(
          bit_cast<u32>(scale), scales_of(args, row, ceil_div(args.k, kBlock)).descriptor,
          column / kBlock * args.scale_column * sizeof(f32), 0, 0);
    return scale;
  }
};

// The same, given. Past the end of a row it is that of the last column.
struct GivenScale {
  using Unscale = Multiplied;

  template <class T>
  HK_DEVICE static f32 of(const Piece<T>&, const QuantizeFp8Args& args, u32 row, u32 column) {
    const BoundedView scales =
        scales_of(args, row >> args.row_shift, ((args.k - 1) >> args.column_shift) + 1);
    const u32 existing = min(i32(column), args.k - 1);
    return bit_cast<f32>(
        load_word(scales, (existing >> args.column_shift) * args.scale_column * sizeof(f32)));
  }
};

template <class Kernel, class T>
HK_DEVICE void run(const QuantizeFp8Args& args) {
  if (is_whole<T>(args))
    Kernel::template run<true>(args);
  else
    Kernel::template run<false>(args);
}

// Facts and sizes that the launch must know (hk_backend/lab/toolchain/build.py).
template <class Kernel>
constexpr KernelInfo<Facts> info(const Facts& facts) {
  KernelInfo<Facts> made = {
      1, Kernel::kColumns, 1, Kernel::kLdsBytes, 0, {}, "quantize_fp8", facts, {8, 0}};
  for (int i = 0; Kernel::kGrid[i]; ++i) made.grid[i] = Kernel::kGrid[i];
  return made;
}

}  // namespace hk::quantize

// A kernel for each type of x. fp16 follows from bf16 (hk/table.hpp).
#define QUANTIZE(scale, ...)                                       \
  namespace hk::quantize {                                         \
  template <class T>                                               \
  using scale = __VA_ARGS__;                                       \
  }                                                                \
  HK_FOR_16_BIT_TYPES(QUANTIZE_KERNEL, scale, hk::quantize::scale) \
  QUANTIZE_KERNEL(f32, scale, hk::quantize::scale)
#define QUANTIZE_KERNEL(T, scale, Kernel)                \
  HK_KERNEL(Kernel<hk::T>::kThreads, 8)                  \
  quantize_fp8_##scale##_##T(hk::QuantizeFp8Args args) { \
    hk::quantize::run<Kernel<hk::T>, hk::T>(args);       \
  }                                                      \
  HK_KERNEL_INFO(quantize_fp8_##scale##_##T, hk::quantize::info<Kernel<hk::T>>({#T, #scale}));

QUANTIZE(token, Token<T, 4>);
QUANTIZE(token_long, Token<T, 16>);
QUANTIZE(block, Part<T, BlockScale>);
QUANTIZE(given, Part<T, GivenScale>);
