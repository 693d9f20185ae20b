// One wave's operations on register tiles: one small kernel each.
#include "kernel.hpp"

namespace hk {
namespace {

template <class T, int Rows, int Depth>
HK_DEVICE void load_operand(const TileTestArgs& args) {
  OperandTile<T, Rows, Depth> tile;
  load(tile, BoundedView(address(args.buffer[0]), args.number[1]), args.number[0], this_lane());
  dump(words(args.buffer[1]), tile);
}

// buffers: a, b (rows of operands), c (a dumped block), result
template <class T>
HK_DEVICE void multiply(const TileTestArgs& args) {
  constexpr int kRowBytes = DefaultShape::kDepth * sizeof(T);
  OperandTile<T, 32, DefaultShape::kDepth> a, b;
  load(a, BoundedView(address(args.buffer[0]), 32 * kRowBytes), kRowBytes, this_lane());
  load(b, BoundedView(address(args.buffer[1]), 32 * kRowBytes), kRowBytes, this_lane());
  Block c, result;
  undump(c, words(args.buffer[2]));
  mma(result, a.part[0][0], b.part[0][0], c);
  dump(words(args.buffer[3]), result);
  dump(words(args.buffer[2]), c);
}

HK_DEVICE void map_blocks(const TileTestArgs& args) {
  Block src, mapped, scaled, filled = {};
  ColumnVector factor;
  undump(src, words(args.buffer[0]));
  undump(factor, words(args.buffer[1]));
  map(mapped, src, [](Pair x) { return x * x + Pair{1, 1}; });
  scale(scaled, src, factor);
  fill(filled, -0.0f);
  const Global<u32> out = words(args.buffer[2]);
  constexpr int kBlock = arch::kLanes * DefaultShape::kResult;
  dump(out, mapped);
  dump(out + kBlock, scaled);
  dump(out + 2 * kBlock, filled);
  dump(out + 3 * kBlock, src);
}

HK_DEVICE void reduce_block(const TileTestArgs& args) {
  Block src;
  ColumnVector start, top, sum, largest;
  undump(src, words(args.buffer[0]));
  undump(start, words(args.buffer[1]));
  top = start;
  static_for<0, DefaultShape::kResult / 2>([&](auto i) { max_rows(top, top, pair(src, i)); });
  reduce_halves(sum, top, [](f32 a, f32 b) { return a + b; });
  reduce_halves(largest, top, [](f32 a, f32 b) { return __builtin_elementwise_maximum(a, b); });
  const bool above = any(start > bit_cast<f32>(args.number[0]));
  const Global<u32> out = words(args.buffer[2]);
  dump(out, Vec<f32, 4>{top, sum, largest, above ? 1.0f : 0.0f});
}

// number[0] pairs a lane
template <class T>
HK_DEVICE void convert_pairs(const TileTestArgs& args) {
  const i32 first =
      (__builtin_amdgcn_workgroup_id_x() * arch::kLanes + this_lane().id) * args.number[0];
  for (i32 i = first; i < first + args.number[0]; ++i) {
    const auto in = words<const f32>(args.buffer[0]);
    words(args.buffer[1])[i] = convert<T>(Pair{in[2 * i], in[2 * i + 1]});
  }
}

// Each word of a fragment, every other word of it left as it was.
template <class T>
HK_DEVICE void convert_into(const TileTestArgs& args) {
  Pair src;
  Fragment<T> before;
  undump(src, words(args.buffer[0]));
  undump(before, words(args.buffer[1]));
  static_for<0, Fragment<T>::kWords>([&](auto i) {
    Fragment<T> dst = before;
    convert<T, i.value>(dst, src);
    dump(words(args.buffer[2]) + i * arch::kLanes * Fragment<T>::kWords, dst);
  });
}

template <class T>
HK_DEVICE void keep(const TileTestArgs& args) {
  Fragment<T> src, dst;
  undump(src, words(args.buffer[0]));
  keep_below(dst, src, args.number[0], this_lane());
  dump(words(args.buffer[1]), dst);
  dump(words(args.buffer[0]), src);
}

// numbers: row bytes, bytes of the view, first channel, channels (below: of those that exist)
template <class T, bool Below>
HK_DEVICE void store_rows(const TileTestArgs& args) {
  Block src;
  undump(src, words(args.buffer[0]));
  const BoundedView dst(address(args.buffer[1]) + args.number[4], args.number[1]);
  if constexpr (Below)
    store_transposed_below<T>(
        dst, [&] { return this_lane().col * args.number[0]; }, args.number[2], args.number[3], src,
        this_lane());
  else
    store_transposed<T>(dst, this_lane().col * args.number[0], args.number[2], src, this_lane());
}

HK_DEVICE void store_columns(const TileTestArgs& args) {
  ColumnVector src;
  undump(src, words(args.buffer[0]));
  store(BoundedView(address(args.buffer[1]) + args.number[4], args.number[1]),
        this_lane().col * args.number[0], src, this_lane());
}

// The largest FP8 number of the arch, as it is and as its instructions convert it.
HK_DEVICE void convert_fp8(const TileTestArgs& args) {
  const int converted = __builtin_amdgcn_cvt_pk_fp8_f32(arch::kFp8Max, arch::kFp8Max, 0, false);
  dump(words(args.buffer[0]), Vec<u32, 2>{bit_cast<u32>(arch::kFp8Max), u32(converted)});
}

}  // namespace
}  // namespace hk

using namespace hk;

HK_KERNEL(64, 1) load_operand_bf16(TileTestArgs args) { load_operand<bf16, 64, 64>(args); }
HK_KERNEL(64, 1) load_operand_f16(TileTestArgs args) { load_operand<f16, 32, 128>(args); }
HK_KERNEL(64, 1) mma_bf16(TileTestArgs args) { multiply<bf16>(args); }
HK_KERNEL(64, 1) mma_f16(TileTestArgs args) { multiply<f16>(args); }
HK_KERNEL(64, 1) map_all(TileTestArgs args) { map_blocks(args); }
HK_KERNEL(64, 1) reduce_all(TileTestArgs args) { reduce_block(args); }
HK_KERNEL(64, 1) convert_bf16(TileTestArgs args) { convert_pairs<bf16>(args); }
HK_KERNEL(64, 1) convert_f16(TileTestArgs args) { convert_pairs<f16>(args); }
HK_KERNEL(64, 1) convert_into_bf16(TileTestArgs args) { convert_into<bf16>(args); }
HK_KERNEL(64, 1) convert_into_f16(TileTestArgs args) { convert_into<f16>(args); }
HK_KERNEL(64, 1) fp8_limits(TileTestArgs args) { convert_fp8(args); }
HK_KERNEL(64, 1) keep_bf16(TileTestArgs args) { keep<bf16>(args); }
HK_KERNEL(64, 1) keep_f16(TileTestArgs args) { keep<f16>(args); }
HK_KERNEL(64, 1) store_bf16(TileTestArgs args) { store_rows<bf16, false>(args); }
HK_KERNEL(64, 1) store_f16(TileTestArgs args) { store_rows<f16, false>(args); }
HK_KERNEL(64, 1) store_f32(TileTestArgs args) { store_rows<f32, false>(args); }
HK_KERNEL(64, 1) store_below_bf16(TileTestArgs args) { store_rows<bf16, true>(args); }
HK_KERNEL(64, 1) store_below_f16(TileTestArgs args) { store_rows<f16, true>(args); }
HK_KERNEL(64, 1) store_below_f32(TileTestArgs args) { store_rows<f32, true>(args); }
HK_KERNEL(64, 1) store_column_vector(TileTestArgs args) { store_columns(args); }
