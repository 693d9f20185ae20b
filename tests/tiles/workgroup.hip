// What waves do through LDS, under the swizzle of the shipped kernels.
#include "workgroup.hpp"

namespace hk {
namespace {

// buffers: base of the ring's tile at each step, base of each of its tiles
HK_DEVICE void walk_ring(const TileTestArgs& args) {
  TileRing<SharedTile<bf16, 16, 64>, 3> ring{1024};
  for (i32 i = 0; i < args.number[0]; ++i, ring.advance())
    words(args.buffer[0])[i] = ring.tile().base;
  static_for<0, 3>([&](auto i) { words(args.buffer[1])[i] = ring.tile(i).base; });
}

}  // namespace
}  // namespace hk

using namespace hk;
using swizzle::SpreadRows;

HK_KERNEL(64, 1) load_rows_bf16_64(TileTestArgs args) { load_rows<bf16, 64, SpreadRows>(args); }
HK_KERNEL(64, 1) load_rows_bf16_128(TileTestArgs args) { load_rows<bf16, 128, SpreadRows>(args); }
HK_KERNEL(64, 1) load_rows_f16_64(TileTestArgs args) { load_rows<f16, 64, SpreadRows>(args); }
HK_KERNEL(64, 1) load_rows_f16_128(TileTestArgs args) { load_rows<f16, 128, SpreadRows>(args); }
HK_KERNEL(64, 1) load_rows_bf16_256(TileTestArgs args) { load_rows<bf16, 256, SpreadRows>(args); }
HK_KERNEL(64, 1) load_columns_bf16_64(TileTestArgs args) {
  load_columns<bf16, 64, SpreadRows>(args);
}
HK_KERNEL(64, 1) load_columns_bf16_128(TileTestArgs args) {
  load_columns<bf16, 128, SpreadRows>(args);
}
HK_KERNEL(64, 1) load_columns_f16_64(TileTestArgs args) { load_columns<f16, 64, SpreadRows>(args); }
HK_KERNEL(64, 1) load_columns_f16_128(TileTestArgs args) {
  load_columns<f16, 128, SpreadRows>(args);
}
HK_KERNEL(64, 1) load_columns_bf16_256(TileTestArgs args) {
  load_columns<bf16, 256, SpreadRows>(args);
}
HK_KERNEL(64, 1) product_of_result_bf16_64(TileTestArgs args) {
  product_of_result<bf16, 64, SpreadRows>(args);
}
HK_KERNEL(64, 1) product_of_result_f16_128(TileTestArgs args) {
  product_of_result<f16, 128, SpreadRows>(args);
}
HK_KERNEL(64, 1) copy_64_64_1(TileTestArgs args) { copy_tile<bf16, 64, 64, 1, SpreadRows>(args); }
HK_KERNEL(128, 1) copy_64_64_2(TileTestArgs args) { copy_tile<bf16, 64, 64, 2, SpreadRows>(args); }
HK_KERNEL(192, 1) copy_48_128_3(TileTestArgs args) {
  copy_tile<bf16, 48, 128, 3, SpreadRows>(args);
}
HK_KERNEL(256, 1) copy_64_64_4(TileTestArgs args) { copy_tile<f16, 64, 64, 4, SpreadRows>(args); }
HK_KERNEL(256, 1) copy_64_128_4(TileTestArgs args) {
  copy_tile<bf16, 64, 128, 4, SpreadRows>(args);
}
HK_KERNEL(320, 1) copy_80_128_5(TileTestArgs args) {
  copy_tile<bf16, 80, 128, 5, SpreadRows>(args);
}
HK_KERNEL(384, 1) copy_96_64_6(TileTestArgs args) { copy_tile<bf16, 96, 64, 6, SpreadRows>(args); }
HK_KERNEL(448, 1) copy_112_64_7(TileTestArgs args) { copy_tile<f16, 112, 64, 7, SpreadRows>(args); }
HK_KERNEL(512, 1) copy_64_64_8(TileTestArgs args) { copy_tile<bf16, 64, 64, 8, SpreadRows>(args); }
HK_KERNEL(512, 1) copy_64_128_8(TileTestArgs args) { copy_tile<f16, 64, 128, 8, SpreadRows>(args); }
HK_KERNEL(512, 1) copy_256_64_8(TileTestArgs args) {
  copy_tile<bf16, 256, 64, 8, SpreadRows>(args);
}
HK_KERNEL(64, 1) copy_32_256_1(TileTestArgs args) { copy_tile<bf16, 32, 256, 1, SpreadRows>(args); }
HK_KERNEL(256, 1) copy_32_256_4(TileTestArgs args) { copy_tile<f16, 32, 256, 4, SpreadRows>(args); }
HK_KERNEL(128, 1) stream_64(TileTestArgs args) { stream_tiles<bf16, 64, SpreadRows>(args); }
HK_KERNEL(128, 1) stream_128(TileTestArgs args) { stream_tiles<f16, 128, SpreadRows>(args); }
HK_KERNEL(64, 1) ring_bases(TileTestArgs args) { walk_ring(args); }
