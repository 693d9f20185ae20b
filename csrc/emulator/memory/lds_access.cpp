#include "memory/lds_access.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace hk::emulator {

bool LdsAccess::is_inside(uint32_t alignment) const {
  uint32_t all = 0, most = 0;
  const auto add = [&](uint32_t at) {
    all |= at;
    most = std::max(most, at);
  };
  for (int a = 0; a < f_.accesses; ++a)
    if (f_.lds_lanes == ~0ull)
      for (const uint32_t at : f_.lds[a]) add(at);
    else
      for (uint64_t left = f_.lds_lanes; left; left &= left - 1)
        add(f_.lds[a][std::countr_zero(left)]);
  return (all & (alignment - 1)) == 0 && uint64_t(most) + f_.bytes <= g_.lds.size();
}

void LdsAccess::check_bounds(uint32_t alignment) const {
  if (f_.lds_lanes == 0 || is_inside(alignment)) return;
  for (int a = 0; a < f_.accesses; ++a)
    for (uint64_t left = f_.lds_lanes; left; left &= left - 1) {
      const int lane = std::countr_zero(left);
      const uint32_t at = f_.lds[a][lane];
      if (uint64_t(at) + f_.bytes > g_.lds.size())
        g_.stop("lds-out-of-bounds",
                "LDS address " + hex(at) + " of " + std::to_string(g_.lds.size()) + " bytes",
                {index_, -1, w_.index, lane, at});
      if ((at & (alignment - 1)) != 0)
        g_.stop("misaligned",
                "LDS address " + hex(at) + " is not a multiple of " + std::to_string(alignment),
                {index_, -1, w_.index, lane, at});
    }
}

void LdsAccess::check_races(bool read, bool write) const {
  f_.lds_reads = read;
  f_.lds_writes = write;
  if (!g_.checks()) return;
  for (int a = 0; a < f_.accesses; ++a) {
    uint64_t left = f_.lds_lanes;
    if (write && !read && g_.lds.write_lanes(f_.lds[a], left, f_.bytes, w_.index, index_)) continue;
    if (read && !write) left = g_.lds.read_lanes(f_.lds[a], left, f_.bytes, w_.index, index_);
    for (; left; left &= left - 1) {
      const int lane = std::countr_zero(left);
      const uint32_t at = f_.lds[a][lane];
      Lds::Verdict v;
      if (read) v = g_.lds.read(at, f_.bytes, w_.index, index_);
      if (write && v.fault == Lds::Verdict::Fault::none)
        v = g_.lds.write(at, f_.bytes, w_.index, index_);
      if (v.fault == Lds::Verdict::Fault::race && write && !read && writes_the_same(v, a, lane))
          [[unlikely]]
        v = g_.lds.race_with_readers(at, f_.bytes, w_.index);
      if (v.fault != Lds::Verdict::Fault::none) [[unlikely]]
        report(v, lane, at, write);
    }
  }
}

// Two waves may write the same value by one instruction: Triton has it where their data are copies.
bool LdsAccess::writes_the_same(const Lds::Verdict& v, int access, int lane) const {
  if (v.instruction != index_ || p_.memory.access != Access::store) return false;
  const Operand& data = p_.instruction->src[1 + access];
  const int row = data.index + (data.kind == Kind::agpr ? 256 : 0);
  uint32_t value[4];
  for (int d = 0; d < (f_.bytes + 3) / 4; ++d) value[d] = w_.wave.vgpr[row + d][lane];
  if (p_.memory.high) value[0] >>= 16;
  return std::memcmp(g_.lds.at(f_.lds[access][lane]), value, f_.bytes) == 0;
}

void LdsAccess::report(const Lds::Verdict& v, int lane, uint32_t at, bool write) const {
  using Fault = Lds::Verdict::Fault;
  if (v.fault == Fault::race && p_.memory.access == Access::atomic &&
      g_.launch.program->instructions[v.instruction].memory.access == Access::atomic)
    return;  // atomics of several waves need no barrier between them
  const Place place{index_, v.fault == Fault::unwritten ? -1 : int64_t(v.instruction), w_.index,
                    lane, at};
  const std::string verb = write ? "writes" : "reads";
  if (v.fault == Fault::unwritten)
    g_.findings.add("lds-unwritten", "reads LDS bytes at " + hex(at) + " that nobody wrote", place);
  else if (v.fault == Fault::in_flight)
    g_.findings.add("lds-race",
                    verb + " LDS bytes at " + hex(at) + " while wave " + std::to_string(v.wave) +
                        "'s copy to them is in flight",
                    place);
  else
    g_.findings.add("lds-race",
                    verb + " LDS bytes at " + hex(at) + " that wave " + std::to_string(v.wave) +
                        " uses without a barrier "
                        "(and a wait before it) in between",
                    place);
}

}  // namespace hk::emulator
