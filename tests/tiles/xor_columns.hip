// Transposed reads, which gfx950 alone has.
#include "workgroup.hpp"
#include "xor_rows.hpp"

using namespace hk;

HK_KERNEL(64, 1) load_columns_bf16_64(TileTestArgs args) { load_columns<bf16, 64, XorRows>(args); }
HK_KERNEL(64, 1) load_columns_f16_128(TileTestArgs args) { load_columns<f16, 128, XorRows>(args); }
HK_KERNEL(64, 1) product_of_result_bf16_64(TileTestArgs args) {
  product_of_result<bf16, 64, XorRows>(args);
}
HK_KERNEL(64, 1) product_of_result_f16_128(TileTestArgs args) {
  product_of_result<f16, 128, XorRows>(args);
}
