// Results in flight: what their registers hold meanwhile, and how they land.
#include <algorithm>
#include <bit>
#include <cstring>

#include "machine/workgroup.hpp"
#include "memory/lane_data.hpp"

namespace hk::emulator {

void poison(WaveState& w, const InFlight& f) {
  for (int row = f.first; row < f.first + f.count; ++row) {
    w.pending.set(row);
    if (f.lanes == ~0ull) {
      std::fill_n(w.wave.vgpr[row], kLanes, kPoisonedRegister);
      continue;
    }
    for (int lane = 0; lane < kLanes; ++lane)
      if (f.lanes >> lane & 1) w.wave.vgpr[row][lane] = kPoisonedRegister;
  }
}

void land(Workgroup& g, WaveState& w, InFlight& f) {
  using What = InFlight::What;
  if (f.what == What::scalar) {
    for (int i = 0; i < f.count; ++i) {
      const int s = f.first + i;
      w.wave.sgpr[s] = f.data[i][0];
      w.scalar_pending[s / 64] &= ~(1ull << s % 64);
      w.scalar_written[s / 64] |= 1ull << s % 64;
    }
  } else if (f.what == What::copy) {
    for (uint64_t left = f.lanes; left; left &= left - 1) {
      const int lane = std::countr_zero(left);
      std::byte* to = g.lds.at(f.lds[0][lane]);
      const uint32_t valid = f.from[lane] ? f.data[0][lane] : 0;
      const bool whole = valid == f.bytes && for_dwords(valid, [&](auto dwords) {
                           std::memcpy(to, f.from[lane], 4 * dwords);
                         });
      if (whole) continue;
      if (valid) std::memcpy(to, f.from[lane], valid);
      std::memset(to + valid, 0, f.bytes - valid);  // out of range: zeros
    }
    if (g.checks()) g.lds.end_copy(f.lds[0], f.lanes, f.bytes, w.index, f.instruction);
  } else {
    for (int d = 0; d < f.count; ++d) {
      uint32_t* row = w.wave.vgpr[f.first + d];
      const uint32_t* data = f.data[d];
      if (f.lanes == ~0ull) {
        std::memcpy(row, data, kLanes * 4);
      } else {
        for (int lane = 0; lane < kLanes; ++lane)
          if (f.lanes >> lane & 1) row[lane] = data[lane];
      }
      if (!(f.superseded >> d & 1)) w.pending.clear(f.first + d);
      note_written(w, f.first + d, f.lanes);
    }
  }
}

}  // namespace hk::emulator
