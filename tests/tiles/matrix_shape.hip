// A matrix shape that no shipped kernel uses: one specialisation of the trait, and every operation
// on register tiles takes it.
#include "kernel.hpp"

namespace hk {

using Small = arch::MmaShape<16, 16, 32>;

template <>
struct arch::Mma<bf16, bf16, Small> : Small {
  HK_DEVICE static Vec<f32, 4> multiply(Vec<bf16, 8> a, Vec<bf16, 8> b, Vec<f32, 4> c) {
    return __builtin_amdgcn_mfma_f32_16x16x32_bf16(a, b, c, 0, 0, 0);
  }
};
template <>
struct arch::Mma<f16, f16, Small> : Small {
  HK_DEVICE static Vec<f32, 4> multiply(Vec<f16, 8> a, Vec<f16, 8> b, Vec<f32, 4> c) {
    return __builtin_amdgcn_mfma_f32_16x16x32_f16(a, b, c, 0, 0, 0);
  }
};

namespace {

constexpr int kDepth = 64;

// out = 2 (1 + a b^T) up to depth number[0]: a [Rows, 64], b [Cols, 64], out [block][block] dumped.
template <class T, int Rows, int Cols>
HK_DEVICE void multiply(const TileTestArgs& args) {
  constexpr u32 kRowBytes = kDepth * sizeof(T);
  const Lane lane = this_lane();
  OperandTile<T, Rows, kDepth, Small> a;
  OperandTile<T, Cols, kDepth, Small> b;
  load(a, BoundedView(address(args.buffer[0]), Rows * kRowBytes), kRowBytes, lane);
  load(b, BoundedView(address(args.buffer[1]), Cols * kRowBytes), kRowBytes, lane);
  ResultTile<Rows, Cols, Small> out;
  static_for<0, out.kRowBlocks>([&](auto row) {
    static_for<0, out.kColBlocks>([&](auto col) {
      ResultBlock<Small>& block = out.block[row][col];
      fill(block, 1);
      static_for<0, a.kSteps>([&](auto step) {
        Fragment<T, Small> rows, cols;
        keep_below(rows, a.part[row][step], args.number[0] - Small::kDepth * step, lane);
        keep_below(cols, b.part[col][step], args.number[0] - Small::kDepth * step, lane);
        mma(block, rows, cols, block);
      });
      scale(block, block, 2);
      dump(words(args.buffer[2]) + (row * out.kColBlocks + col) * arch::kLanes * Small::kResult,
           block);
    });
  });
}

}  // namespace
}  // namespace hk

using namespace hk;

HK_KERNEL(64, 1) multiply_16x16_bf16(TileTestArgs args) { multiply<bf16, 32, 48>(args); }
HK_KERNEL(64, 1) multiply_16x16_f16(TileTestArgs args) { multiply<f16, 48, 16>(args); }
