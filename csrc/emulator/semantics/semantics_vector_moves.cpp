// VALU instructions that move values: between lanes, between register files, by a mask.
#include <utility>

#include "semantics/lanes.hpp"

namespace hk::emulator::HK_ISA {
namespace {

using u32 = uint32_t;
using u64 = uint64_t;

void select(Wave& w, const Instruction& in) {  // v_cndmask_b32
  Row scratch[2], result;
  const u32* const clear = source_row(w, in, 0, 0, As::b32, scratch[0]);
  const u32* const set = source_row(w, in, 1, 0, As::b32, scratch[1]);
  result = *reinterpret_cast<const Row*>(clear);
  blend(result.lane, set, w.pair(in.src[2].index));
  write_row(w, in, 0, result);
}

u32 scalar(const Wave& w, const Operand& o) {
  if (o.kind == Kind::sgpr) return w.sgpr[o.index];
  if (o.kind == Kind::constant) return u32(o.value);
  throw Unsupported("a lane or a value to write that is neither an SGPR nor a constant");
}

u32 lane_of(Wave& w, const Operand& o, int lane) {
  return o.kind == Kind::vgpr || o.kind == Kind::agpr ? register_row(w, o)[lane] : scalar(w, o);
}

void read_lane(Wave& w, const Instruction& in) {  // regardless of EXEC
  w.sgpr[in.dst[0].index] = lane_of(w, in.src[0], int(scalar(w, in.src[1]) & 63));
}

void read_first_lane(Wave& w, const Instruction& in) {  // lane 0 if none is active
  const u64 exec = w.exec();
  w.sgpr[in.dst[0].index] = lane_of(w, in.src[0], exec ? std::countr_zero(exec) : 0);
}

void write_lane(Wave& w, const Instruction& in) {  // regardless of EXEC
  register_row(w, in.dst[0])[scalar(w, in.src[1]) & 63] = scalar(w, in.src[0]);
}

void swap(Wave& w, const Instruction& in) {
  u32 *const a = register_row(w, in.dst[0]), *const b = register_row(w, in.dst[1]);
  for (int lane = 0; lane < kLanes; ++lane)
    if (w.exec() >> lane & 1) std::swap(a[lane], b[lane]);
}

// Swaps the even runs of kRun lanes of vsrc (dst[1]) with the odd runs of vdst (dst[0]).
template <int kRun>
void swap_runs(Wave& w, const Instruction& in) {
  if (w.exec() != ~0ull)
    throw Unsupported("v_permlane*_swap with inactive lanes: what they receive is not documented");
  u32 *const odd = register_row(w, in.dst[0]), *const even = register_row(w, in.dst[1]);
  for (int lane = 0; lane < kLanes; ++lane)
    if (!(lane & kRun)) std::swap(even[lane], odd[lane + kRun]);
}

}  // namespace

void add_moves(Semantics& all, Arch arch) {
  all["v_nop"] = [](Wave&, const Instruction&) {};
  for (const char* name :
       {"v_mov_b32", "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32"})
    all[name] = plain([](u32 a) { return a; });
  all["v_mov_b64"] = plain([](u64 a) { return a; });
  all["v_cndmask_b32"] = select;
  all["v_readlane_b32"] = read_lane;
  all["v_readfirstlane_b32"] = read_first_lane;
  all["v_writelane_b32"] = write_lane;
  all["v_swap_b32"] = swap;
  if (arch != Arch::gfx950) return;
  all["v_permlane16_swap_b32"] = swap_runs<16>;
  all["v_permlane32_swap_b32"] = swap_runs<32>;
}

}  // namespace hk::emulator::HK_ISA
