// out = factor * x of f32 [rows, columns], both contiguous. A workgroup has 256 neighbours of a
// row:
//   load a word | multiply | store it
// Memory bounds it. Past the end of a row loads give zeros, and stores vanish.
#include "hk/args/rows.hpp"
#include "hk/hk.hpp"
#include "hk/kernel_info.hpp"

HK_ARCHES(gfx950);

namespace hk::scale {

struct Args {
  i32 rows, columns;
  const void* x;
  void* out;
  f32 factor;
};

struct Facts {
  char x[16];
};

constexpr int kThreads = 256;

}  // namespace hk::scale

HK_KERNEL(hk::scale::kThreads, 8) scale_f32(hk::scale::Args args) {
  using namespace hk;
  const u64 first = u64(__builtin_amdgcn_workgroup_id_x()) * args.columns * sizeof(f32);
  const u32 bytes = u32(args.columns) * sizeof(f32);
  const BoundedView x(address(args.x) + first, bytes), out(address(args.out) + first, bytes);
  const u32 at =
      (__builtin_amdgcn_workgroup_id_y() * scale::kThreads + __builtin_amdgcn_workitem_id_x()) *
      sizeof(f32);
  const f32 scaled = bit_cast<f32>(load_word(x, at)) * args.factor;
  __builtin_amdgcn_raw_buffer_store_b32(bit_cast<u32>(scaled), out.descriptor, at, 0, 0);
}
HK_KERNEL_INFO(scale_f32, hk::KernelInfo<hk::scale::Facts>{
                              1, hk::scale::kThreads, 1, 0, 0, "rows", "scale", {"f32"}, {8, 0}});
