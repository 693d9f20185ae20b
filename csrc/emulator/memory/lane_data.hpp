// Moves the data of many lanes between memory, where those of a lane lie together, and registers,
// where each dword has a row of lanes. Four lanes at a time are transposed.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "machine/wave.hpp"

namespace hk::emulator {

typedef uint32_t FourDwords __attribute__((vector_size(16)));

inline void transpose(FourDwords (&v)[4]) {
  const FourDwords a = __builtin_shuffle(v[0], v[1], FourDwords{0, 4, 1, 5});
  const FourDwords b = __builtin_shuffle(v[0], v[1], FourDwords{2, 6, 3, 7});
  const FourDwords c = __builtin_shuffle(v[2], v[3], FourDwords{0, 4, 1, 5});
  const FourDwords d = __builtin_shuffle(v[2], v[3], FourDwords{2, 6, 3, 7});
  v[0] = __builtin_shuffle(a, c, FourDwords{0, 1, 4, 5});
  v[1] = __builtin_shuffle(a, c, FourDwords{2, 3, 6, 7});
  v[2] = __builtin_shuffle(b, d, FourDwords{0, 1, 4, 5});
  v[3] = __builtin_shuffle(b, d, FourDwords{2, 3, 6, 7});
}

// Calls four(lane) for each four lanes from a multiple of 4 on that are all chosen, one(lane) for
// the other chosen lanes.
template <class Four, class One>
void by_fours(uint64_t lanes, Four&& four, One&& one) {
  for (int lane = 0; lane < kLanes; lane += 4) {
    const unsigned chosen = lanes >> lane & 15;
    if (chosen == 15)
      four(lane);
    else
      for (unsigned left = chosen; left; left &= left - 1) one(lane + std::countr_zero(left));
  }
}

// Loads kDwords dwords of each of `lanes` from the address at(lane) to rows.
template <int kDwords, class At>
void load_lanes(At&& at, uint64_t lanes, uint32_t (*rows)[kLanes]) {
  const auto one = [&](int lane) {
    uint32_t value[kDwords];
    std::memcpy(value, at(lane), sizeof value);
    for (int d = 0; d < kDwords; ++d) rows[d][lane] = value[d];
  };
  by_fours(
      lanes,
      [&](int lane) {
        FourDwords v[4] = {};
        for (int i = 0; i < 4; ++i) std::memcpy(&v[i], at(lane + i), 4 * kDwords);
        transpose(v);
        for (int d = 0; d < kDwords; ++d) std::memcpy(&rows[d][lane], &v[d], sizeof v[d]);
      },
      one);
}

// Stores kDwords dwords of each of `lanes` from rows to the address at(lane), in the lanes' order.
template <int kDwords, class At>
void store_lanes(At&& at, uint64_t lanes, const uint32_t (*rows)[kLanes]) {
  const auto one = [&](int lane) {
    uint32_t value[kDwords];
    for (int d = 0; d < kDwords; ++d) value[d] = rows[d][lane];
    std::memcpy(at(lane), value, sizeof value);
  };
  by_fours(
      lanes,
      [&](int lane) {
        FourDwords v[4] = {};
        for (int d = 0; d < kDwords; ++d) std::memcpy(&v[d], &rows[d][lane], sizeof v[d]);
        transpose(v);
        for (int i = 0; i < 4; ++i) std::memcpy(at(lane + i), &v[i], 4 * kDwords);
      },
      one);
}

// Calls body(std::integral_constant<int, dwords>) if `bytes` is a usual number of whole dwords;
// returns whether it is.
template <class Body>
bool for_dwords(unsigned bytes, Body&& body) {
  switch (bytes) {
    case 4: body(std::integral_constant<int, 1>()); return true;
    case 8: body(std::integral_constant<int, 2>()); return true;
    case 12: body(std::integral_constant<int, 3>()); return true;
    case 16: body(std::integral_constant<int, 4>()); return true;
    default: return false;
  }
}

}  // namespace hk::emulator
