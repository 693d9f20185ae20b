// For both arches: copies of 16 and of 4 bytes, reads of 16 and of 8.
#include "workgroup.hpp"
#include "xor_rows.hpp"

using namespace hk;

HK_KERNEL(64, 1) load_rows_bf16_64(TileTestArgs args) { load_rows<bf16, 64, XorRows>(args); }
HK_KERNEL(64, 1) load_rows_f16_128(TileTestArgs args) { load_rows<f16, 128, XorRows>(args); }
HK_KERNEL(64, 1) copy_64_64_1(TileTestArgs args) { copy_tile<bf16, 64, 64, 1, XorRows>(args); }
HK_KERNEL(512, 1) copy_64_128_8(TileTestArgs args) { copy_tile<f16, 64, 128, 8, XorRows>(args); }
HK_KERNEL(128, 1) stream_64(TileTestArgs args) { stream_tiles<bf16, 64, XorRows>(args); }
HK_KERNEL(128, 1) stream_128(TileTestArgs args) { stream_tiles<f16, 128, XorRows>(args); }
