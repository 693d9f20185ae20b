// Codes of OCP microscaling formats: x [m, k], rotated if asked for, in blocks of 32 neighbours
// with one e8m0 scale each. See hk/args/quantize_mx.hpp for the argument, quantize/mx_encode.hpp
// for the arithmetic, which gives the bits of the reference.
//
// Memory bounds it: 2 or 4 bytes read, and 0.53, 0.78 or 1.03 written for an element. Each byte of
// x is read once, each of the results is written once.
//
// A workgroup has 256 blocks, and each of its lanes has one. A quad of lanes has four neighbouring
// blocks of a row. For a packed result the workgroup has 32 rows of 256 columns, a wave 16 rows of
// 128. Else it has 4 rows of 2048, a wave 4 rows of 512: its scales fill sectors of memory.
//   load the block, 16 bytes at a time | rotate: in the lane, then between lanes of a quad |
//   largest magnitude | scale | codes | store both
//
// Choices:
//   - Eight waves on each SIMD, and no loop: others load while one computes.
//   - A whole block in a lane: no lane needs another one's magnitude, and the instruction that
//     packs 32 codes of 6 bits takes the block as it is.
//   - All arithmetic in float32, two elements in an instruction where there is one.
//   - Template arguments: the type of x and the format. At run time: sizes, strides, the rotation,
//     how the scale is rounded, the layout.
#include "hk/kernel_info.hpp"
#include "hk/table.hpp"
#include "quantize/mx_store.hpp"

HK_ARCHES(gfx950);

namespace hk::quantize {

struct MxFacts {
  char x[16], format[16];
};

template <class T, class Code>
struct Mx {
  static constexpr int kWaves = 4, kThreads = kWaves * arch::kLanes;
  static constexpr int kRows = Place::kRows, kColumns = Place::kColumns;
  static_assert(kThreads * kBlock == kRows * kColumns);

  HK_DEVICE static void run(const QuantizeMxArgs& args) {
    const Place place(args, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
                      this_wave());
    Block block = load_block<T>(args, place);
    if (args.rotation) rotate(block, args.rotation);
    const Encoded<Code> encoded(block, args.round_scale_even);
    if (args.packed)
      store_packed(args, place, encoded);
    else
      store_rows(args, place, encoded);
  }
};

// Facts and sizes that the launch must know (hk_backend/lab/toolchain/build.py).
template <class Kernel>
constexpr KernelInfo<MxFacts> mx_info(const MxFacts& facts) {
  return {Kernel::kRows, Kernel::kColumns, 1, 0, 0, "quantize_mx", "quantize_mx", facts, {8, 0}};
}

}  // namespace hk::quantize

// A kernel for each type of x. fp16 follows from bf16 (hk/table.hpp).
#define QUANTIZE_MX(format, Code)                       \
  HK_FOR_16_BIT_TYPES(QUANTIZE_MX_KERNEL, format, Code) \
  QUANTIZE_MX_KERNEL(f32, format, Code)
#define QUANTIZE_MX_KERNEL(T, format, Code)                   \
  HK_KERNEL((hk::quantize::Mx<hk::T, hk::Code>::kThreads), 8) \
  quantize_##format##_##T(hk::QuantizeMxArgs args) {          \
    hk::quantize::Mx<hk::T, hk::Code>::run(args);             \
  }                                                           \
  HK_KERNEL_INFO(quantize_##format##_##T,                     \
                 hk::quantize::mx_info<hk::quantize::Mx<hk::T, hk::Code>>({#T, #format}));

QUANTIZE_MX(mxfp4, E2m1);
QUANTIZE_MX(mxfp6_e2m3, E2m3);
QUANTIZE_MX(mxfp6_e3m2, E3m2);
QUANTIZE_MX(mxfp8, E4m3);
