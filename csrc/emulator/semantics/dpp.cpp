#include "semantics/dpp.hpp"

#include <string>

#include "machine/wave.hpp"
#include "semantics/semantics.hpp"

namespace hk::emulator {
namespace {

// The lane that `lane` reads, or -1 (CDNA3 ISA guide, "DPP_CTRL").
int dpp_source(uint32_t control, int lane) {
  const int row = lane & ~15, column = lane & 15, count = int(control & 15);
  const auto in_row = [&](int c) { return c >= 0 && c < 16 ? row + c : -1; };
  if (control < 0x100) return (lane & ~3) + int(control >> (2 * (lane & 3)) & 3);  // quad_perm
  switch (control & 0x1f0) {
    case 0x100: return in_row(column + count);         // row_shl
    case 0x110: return in_row(column - count);         // row_shr
    case 0x120: return row + ((column - count) & 15);  // row_ror
    case 0x150: return row + count;                    // row_newbcast
  }
  switch (control) {
    case 0x130: return lane < 63 ? lane + 1 : -1;     // wave_shl:1
    case 0x134: return (lane + 1) & 63;               // wave_rol:1
    case 0x138: return lane - 1;                      // wave_shr:1
    case 0x13c: return (lane - 1) & 63;               // wave_ror:1
    case 0x140: return row + 15 - column;             // row_mirror
    case 0x141: return (lane & ~7) + 7 - (lane & 7);  // row_half_mirror
    case 0x142: return row - 1;                       // row_bcast:15; row 0 has none
    case 0x143: return lane >= 32 ? 31 : -1;          // row_bcast:31
  }
  throw Unsupported("dpp_ctrl " + std::to_string(control));
}

// The lanes that all lanes read, by control.
struct DppPatterns {
  static constexpr int kUnknown = -2;
  int8_t source[512][kLanes];

  DppPatterns() {
    for (uint32_t control = 0; control < 512; ++control)
      for (int lane = 0; lane < kLanes; ++lane) try {
          source[control][lane] = int8_t(dpp_source(control, lane));
        } catch (const Unsupported&) {
          source[control][lane] = kUnknown;
        }
  }
};

}  // namespace

const int8_t* dpp_sources(uint32_t control) {
  static const DppPatterns patterns;
  const int8_t* const sources = patterns.source[control & 511];
  if (sources[0] == DppPatterns::kUnknown) dpp_source(control, 0);  // throws
  return sources;
}

}  // namespace hk::emulator
