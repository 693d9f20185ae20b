#include "timing/stall.hpp"

#include <iterator>

namespace hk::emulator::timing {

const char* stall_name(Stall stall) {
  static constexpr const char* kNames[] = {
      "vector memory", "lds",      "barrier",     "matrix result", "matrix busy",
      "vector busy",   "lds busy", "memory busy", "other wave",    "itself"};
  static_assert(std::size(kNames) == kStalls);
  return kNames[int(stall)];
}

}  // namespace hk::emulator::timing
