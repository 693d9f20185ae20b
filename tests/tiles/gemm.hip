// The gemm kernel under another shape, another swizzle and other epilogues than those that ship.
#include "gemm/workgroup.hpp"
#include "kernel.hpp"
#include "xor_rows.hpp"

namespace hk {
namespace {

template <class Element>
struct SmallShape {
  using A = Element;
  using B = Element;
  static constexpr int kTileRows = 64, kTileColumns = 64, kStep = 64, kStages = 3;
  static constexpr int kRowWaves = 2, kColumnWaves = 2;

  template <class T, int Rows>
  using Tile = SharedTile<T, Rows, kStep, XorRows<kStep* int(sizeof(T))>>;
};

// buffers: a, b, c; numbers: m, n, k, rows' strides
HK_DEVICE GemmArgs arguments(const TileTestArgs& args) {
  const i32* number = args.number;
  return {args.buffer[0], args.buffer[1], args.buffer[2], number[3], number[4],
          number[5],      number[0],      number[1],      number[2]};
}

// more buffers: bias [n], scales [m] and [n]
template <class T>
HK_DEVICE gemm::Bias<T> bias(const TileTestArgs& args) {
  return {static_cast<const T*>(args.buffer[3]), args.number[1]};
}
HK_DEVICE gemm::Scales scales(const TileTestArgs& args) {
  return {static_cast<const f32*>(args.buffer[4]), static_cast<const f32*>(args.buffer[5]),
          args.number[0], args.number[1]};
}

}  // namespace
}  // namespace hk

using namespace hk;

HK_KERNEL(256, 1) gemm_bf16_to_bf16(TileTestArgs args) {
  gemm::gemm<SmallShape<bf16>>(arguments(args), gemm::Epilogue<bf16>{});
}
HK_KERNEL(256, 1) gemm_f16_to_f32(TileTestArgs args) {
  gemm::gemm<SmallShape<f16>>(arguments(args), gemm::Epilogue<f32>{});
}
HK_KERNEL(256, 1) gemm_bf16_to_f16_bias(TileTestArgs args) {
  gemm::gemm<SmallShape<bf16>>(arguments(args),
                               gemm::Epilogue<f16, gemm::Bias<bf16>>{bias<bf16>(args)});
}
HK_KERNEL(256, 1) gemm_bf16_to_f32_scales_bias(TileTestArgs args) {
  gemm::gemm<SmallShape<bf16>>(arguments(args), gemm::Epilogue<f32, gemm::Scales, gemm::Bias<f32>>{
                                                    scales(args), bias<f32>(args)});
}
