// Turns that waves and instructions take, where rows lie, and which workgroup computes what.
#include "kernel.hpp"

namespace hk {
namespace {

// Each wave says in LDS which half of which step it is in, and reads after each of its barriers what
// the wave Waves / 2 away had said before. buffer: [wave][step]. number[0]: steps
template <template <int> class Turns, int Waves>
HK_DEVICE void keep_step(const TileTestArgs& args) {
  constexpr int kSlots = 3;  // a slot is written two barriers after it was last read
  const i32 wave = this_wave(), partner = (wave + Waves / 2) % Waves;
  const bool is_late = Turns<Waves>::kLate && wave >= Waves / 2;
  const bool speaks = this_lane().id == 0;
  const Turns<Waves> turns(wave);
  for (i32 step = 0; step < args.number[0]; ++step) {
    i32 barriers = step;
    const auto say = [&](i32 half) {
      if (speaks) lds[barriers % kSlots * Waves + wave] = 2 * step + half;
      __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    };
    const auto look = [&] {
      const u32 said = lds[barriers++ % kSlots * Waves + partner];
      if (speaks) words(args.buffer[0])[wave * args.number[0] + step] = said;
    };
    say(0);
    turns.template middle<0>();
    if (is_late) look();
    say(1);
    turns.template end<0>();
    if (!is_late) look();
  }
}

// For each item the slots that called it: buffer [kind][item] the number of calls, then the slot.
template <int Kind, int First, int Slots, int Items, int AllSlots>
HK_DEVICE void spread_items(Global<u32> out) {
  static_for<0, AllSlots>([&](auto slot) {
    spread<slot.value, First, Slots, Items>([&](auto item) {
      out[(Kind * 64 + item) * 2] += 1;
      out[(Kind * 64 + item) * 2 + 1] = slot.value;
    });
  });
}

// The order in which `interleave` asks its streams: words 16 * stream + slot, one after the other.
template <int Begin, int End>
HK_DEVICE void interleave_streams(Global<u32> out) {
  i32 calls = 0;
  const auto stream = [&](int number) {
    return [&, number](auto slot) { out[calls++] = 16 * number + slot; };
  };
  interleave<Begin, End>(stream(0), stream(1), stream(2));
}

HK_DEVICE PagedRows paged(const TileTestArgs& args) {
  const u32 block_size = args.number[1];
  return {args.number[0], constant((const i32*)args.buffer[1]), block_size, u32(args.number[3])};
}

// Block indices of all rows below number[0], 64 at once.
HK_DEVICE void index_blocks(const TileTestArgs& args) {
  const PagedRows source = paged(args);
  for (u32 row = this_lane().id; row < u32(args.number[0]); row += arch::kLanes)
    words(args.buffer[0])[row] = source.block_index(row);
}

HK_DEVICE void permute(const TileTestArgs& args) {
  const i32 count = args.number[0];
  for (i32 id = this_lane().id; id < count; id += arch::kLanes)
    words(args.buffer[0])[id] = neighbours_on_one_xcd(id, count);
}

// Each workgroup looks for its slot: buffers starts, an array beside them of number[3] elements,
// [slot][exists, request, first row, start, length, beside, next beside].
template <int Rows>
HK_DEVICE void find_tiles(const TileTestArgs& args) {
  const i32 slot = __builtin_amdgcn_workgroup_id_x();
  const QueryTile tile = find_query_tile<Rows>((const i32*)args.buffer[0], args.number[0],
                                               args.number[1], args.number[2], slot, this_lane(),
                                               (const i32*)args.buffer[1], args.number[3]);
  if (this_lane().id == 0) {
    const auto out = words(args.buffer[2]) + 7 * slot;
    out[0] = tile.exists, out[1] = tile.request, out[2] = tile.first_row, out[3] = tile.start,
    out[4] = tile.length, out[5] = tile.beside, out[6] = tile.next_beside;
  }
}

}  // namespace
}  // namespace hk

using namespace hk;

HK_KERNEL(128, 1) ping_pong_2(TileTestArgs args) { keep_step<PingPong, 2>(args); }
HK_KERNEL(512, 2) ping_pong_8(TileTestArgs args) { keep_step<PingPong, 8>(args); }
HK_KERNEL(256, 1) together_4(TileTestArgs args) { keep_step<Together, 4>(args); }
HK_KERNEL(64, 1) spread_all(TileTestArgs args) {
  if (this_lane().id != 0) return;
  spread_items<0, 0, 8, 8, 8>(words(args.buffer[0]));
  spread_items<1, 2, 5, 13, 8>(words(args.buffer[0]));
  spread_items<2, 1, 7, 3, 16>(words(args.buffer[0]));
  spread_items<3, 0, 1, 64, 4>(words(args.buffer[0]));
  spread_items<4, 3, 13, 1, 16>(words(args.buffer[0]));
}
HK_KERNEL(64, 1) interleave_all(TileTestArgs args) {
  if (this_lane().id == 0) interleave_streams<3, 7>(words(args.buffer[0]));
}
HK_KERNEL(64, 1) block_indices(TileTestArgs args) { index_blocks(args); }
HK_KERNEL(64, 1) xcd_order(TileTestArgs args) { permute(args); }
HK_KERNEL(64, 1) query_tiles_256(TileTestArgs args) { find_tiles<256>(args); }
HK_KERNEL(64, 1) query_tiles_32(TileTestArgs args) { find_tiles<32>(args); }
