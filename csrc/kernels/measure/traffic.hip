// Kernels that memory bounds, of the same traffic as kernels with published figures: what the
// timing model says of memory is compared with those, and a GPU can be asked itself. They serve
// nobody.
//
//   gemv_*   a weight times one row (traffic/gemv.hpp)
//   decode   attention of one token a request over a paged cache (traffic/decode.hpp)
//   cast_mxfp8, rotary, layernorm (traffic/elementwise.hpp)
//   rmsnorm, cast_row: rows of any length, and the same with non-temporal loads; add
//   (traffic/rows.hpp)
//
// Loads are of 16 bytes a lane, and those of the next step are in flight while one is computed. See
// hk/args/traffic.hpp for arguments, hk_backend/lab/timing/traffic.py for the figures.
#include "traffic/decode.hpp"
#include "traffic/elementwise.hpp"
#include "traffic/gemv.hpp"
#include "traffic/rows.hpp"

HK_ARCHES(gfx950);

namespace hk::traffic {

constexpr KernelInfo<Facts> info(const char* kernel, u32 lds, const char* grid) {
  KernelInfo<Facts> made = {1, 1, 1, lds, 0, {}, "traffic", {}};
  for (int i = 0; grid[i]; ++i) made.grid[i] = grid[i];
  for (int i = 0; kernel[i]; ++i) made.facts.kernel[i] = kernel[i];
  return made;
}

}  // namespace hk::traffic

#define TRAFFIC(name, waves_per_simd, lds, grid, ...)                                          \
  HK_KERNEL(hk::traffic::__VA_ARGS__::kThreads, waves_per_simd)                                \
  traffic_##name(hk::traffic::__VA_ARGS__::Args args) { hk::traffic::__VA_ARGS__::run(args); } \
  HK_KERNEL_INFO(traffic_##name, hk::traffic::info(#name, lds, grid))

TRAFFIC(gemv_bf16, 2, 256, "gemv", Gemv<hk::traffic::Bf16Pieces>);
TRAFFIC(gemv_fp8, 2, 256, "gemv", Gemv<hk::traffic::Fp8Pieces>);
TRAFFIC(gemv_mxfp4, 2, 256, "gemv", Gemv<hk::traffic::Fp4Pieces>);
TRAFFIC(decode, 2, 16512, "decode", Decode);
TRAFFIC(cast_mxfp8, 8, 0, "cast", Cast);
TRAFFIC(rotary, 8, 0, "rotary", Rotary);
TRAFFIC(layernorm, 4, 0, "norm", Norm);

#define ROWS(name, kernel, parts)                                                \
  namespace hk::traffic {                                                        \
  using name##_##parts##_kept = kernel<parts, false>;                            \
  using name##_##parts##_past = kernel<parts, true>;                             \
  }                                                                              \
  TRAFFIC(name##_##parts, parts == 8 ? 4 : 8, 16, "row", name##_##parts##_kept); \
  TRAFFIC(name##_##parts##_streamed, parts == 8 ? 4 : 8, 16, "row", name##_##parts##_past)
ROWS(rmsnorm, RowNorm, 2);
ROWS(rmsnorm, RowNorm, 4);
ROWS(rmsnorm, RowNorm, 8);
ROWS(cast_row, RowCast, 2);
ROWS(cast_row, RowCast, 4);
ROWS(cast_row, RowCast, 8);
TRAFFIC(add, 8, 0, "add", Add);
