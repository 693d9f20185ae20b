// Global memory to shared memory, by the waves of a workgroup together, past the registers.
#pragma once

#include "../types/global_view.hpp"
#include "../types/register_tile.hpp"
#include "../types/shared_tile.hpp"

namespace hk {

// The share of one wave of `Waves` in copying a tile: kCopies instructions of kCopyBlock bytes,
// rows `first_row` to `first_row` + kRowsSpanned, whatever their order in LDS.
template <class Tile, int Waves>
struct TileCopy {
  using Layout = typename Tile::Layout;
  static constexpr int kCopies = Tile::kBlocks / Waves;
  static constexpr int kPer16 = Layout::kBlocksPer16;
  static constexpr int kRowsSpanned = 16 * ceil_div(kCopies, kPer16);
  static constexpr int kLaneRows = kCopies;  // that a lane copies from
  static_assert(Tile::kBlocks % Waves == 0 && (kCopies % kPer16 == 0 || kPer16 % kCopies == 0));

  i32 first_row;        // wave-uniform
  u32 destination;      // byte in the tile, wave-uniform
  u32 source[kCopies];  // byte from first_row, of this lane

  HK_DEVICE TileCopy(int wave, Lane lane, RowStrides strides)
      : first_row(wave * kCopies / kPer16 * 16),
        destination(wave * kCopies * Layout::kBlockStride) {
    static_for<0, kCopies>([&](auto i) {
      const int block = wave * kCopies + i.value;
      source[i] = (block / kPer16 * 16 - first_row) * strides.row +
                  Layout::source(block % kPer16, lane.id, strides);
    });
  }

  // Lanes whose 16 bytes of a row lie at byte `end` of it or after fetch from `elsewhere`.
  HK_DEVICE void end_rows(i32 end, u32 elsewhere, i32 wave, Lane lane) {
    static_for<0, kCopies>([&](auto i) {
      const int block = (wave * kCopies + i.value) % kPer16;
      if (Layout::row_byte(block, lane.id) >= end) source[i] = elsewhere;
    });
  }

  // The row that a lane copies from in the `i`th instruction, counted from first_row.
  HK_DEVICE static u32 row(int i, int wave, Lane lane) {
    const int block = wave * kCopies + i, first = wave * kCopies / kPer16 * 16;
    return block / kPer16 * 16 - first + Layout::copied_row(block % kPer16, lane.id);
  }
};

// Starts the `I`th instruction of the copy. `src` begins at the wave's first row.
template <int I, class Tile, int Waves>
HK_DEVICE void copy(Tile dst, BoundedView src, const TileCopy<Tile, Waves>& share) {
  const u32 to = dst.base + share.destination + I * Tile::Layout::kBlockStride;
  __builtin_amdgcn_raw_ptr_buffer_load_lds(src.descriptor,
                                           (__attribute__((address_space(3))) void*)to,
                                           arch::kCopyBytes, share.source[I], 0, 0, 0);
}

// The same from an address of each lane, where there must be something.
template <int I, class Tile, int Waves>
HK_DEVICE void copy(Tile dst, const u64 (&from)[TileCopy<Tile, Waves>::kCopies],
                    const TileCopy<Tile, Waves>& share) {
  const u32 to = dst.base + share.destination + I * Tile::Layout::kBlockStride;
  __builtin_amdgcn_global_load_lds((__attribute__((address_space(1))) void*)from[I],
                                   (__attribute__((address_space(3))) void*)to, arch::kCopyBytes, 0,
                                   0);
}

// All of it; it counts as kCopies in `wait_copies`.
template <class Tile, int Waves>
HK_DEVICE void copy(Tile dst, BoundedView src, const TileCopy<Tile, Waves>& share) {
  static_for<0, TileCopy<Tile, Waves>::kCopies>([&](auto i) { copy<i.value>(dst, src, share); });
}
template <class Tile, int Waves>
HK_DEVICE void copy(Tile dst, const u64 (&from)[TileCopy<Tile, Waves>::kCopies],
                    const TileCopy<Tile, Waves>& share) {
  static_for<0, TileCopy<Tile, Waves>::kCopies>([&](auto i) { copy<i.value>(dst, from, share); });
}

// Waits until at most `Pending` of this wave's copies (and other global loads) are outstanding.
template <int Pending>
HK_DEVICE void wait_copies() {
  arch::wait<Pending, arch::kNoWait>();
}

}  // namespace hk
