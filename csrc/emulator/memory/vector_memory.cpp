// Executes buffer, global, flat and scratch instructions, and copies from global memory to LDS.
#include <algorithm>
#include <bit>
#include <cstring>

#include "memory/addresses.hpp"
#include "memory/atomics.hpp"
#include "memory/global_access.hpp"
#include "memory/lane_data.hpp"
#include "memory/lds_access.hpp"
#include "machine/workgroup.hpp"

namespace hk::emulator {
namespace {

int row_of(const Operand& o) { return o.index + (o.kind == Kind::agpr ? 256 : 0); }

// Host address of each lane's bytes; null: the lane accesses nothing.
using Host = std::byte* [kLanes];

void find_scratch(Workgroup& g, const WaveState& w, const Prepared& p, uint32_t index,
                  const Addresses& a, Host& host) {
  const uint32_t size = g.launch.kernel->scratch;
  if (a.scratch && p.memory.access == Access::atomic)
    g.stop("unsupported-instruction", "an atomic access to scratch",
           {index, -1, w.index, std::countr_zero(a.scratch), 0});
  for (uint64_t left = a.scratch; left; left &= left - 1) {
    const int lane = std::countr_zero(left);
    if (a.at[lane] + p.memory.bytes <= size && a.at[lane] < size)
      host[lane] = &g.scratch[(size_t(w.index) * kLanes + size_t(lane)) * size + a.at[lane]];
    else
      g.findings.add("out-of-bounds",
                     "scratch offset " + hex(a.at[lane]) + " of " + std::to_string(size) + " bytes",
                     {index, -1, w.index, lane, a.at[lane]});
  }
}

void find_lds(Workgroup& g, const WaveState& w, const Prepared& p, uint32_t index,
              const Addresses& a, InFlight& f, Host& host) {
  f.lds_lanes = a.lds;
  f.bytes = p.memory.bytes;
  for (uint64_t left = a.lds; left; left &= left - 1)
    f.lds[0][std::countr_zero(left)] = uint32_t(a.at[std::countr_zero(left)]);
  const LdsAccess lds(g, w, p, index, f);
  lds.check_bounds(std::min<uint32_t>(f.bytes, 4));  // FLAT: each dword by itself
  lds.check_races(p.memory.access != Access::store, p.memory.access != Access::load);
  for (uint64_t left = a.lds; left; left &= left - 1) {
    const int lane = std::countr_zero(left);
    host[lane] = g.lds.at(uint32_t(a.at[lane]));
  }
}

void find_memory(Workgroup& g, const WaveState& w, const Prepared& p, uint32_t index,
                 const Addresses& a, InFlight& f, Host& host) {
  GlobalAccess global(g, w, index);
  const uint64_t elsewhere = a.scratch | a.lds;
  for (uint64_t left = w.wave.exec(); left; left &= left - 1) {
    const int lane = std::countr_zero(left);
    host[lane] = nullptr;
    if (a.in_range[lane] == 0 || elsewhere >> lane & 1) continue;
    host[lane] = global.at(a.at[lane], a.in_range[lane], lane);
    if (g.recorder) g.recorder->memory(w.index, a.at[lane], a.in_range[lane]);
    if (p.memory.access == Access::atomic && a.at[lane] % p.memory.bytes != 0)
      g.findings.add("misaligned", "an atomic access at " + hex(a.at[lane]),
                     {index, -1, w.index, lane, a.at[lane]});
  }
  if (a.scratch) find_scratch(g, w, p, index, a, host);
  if (a.lds) find_lds(g, w, p, index, a, f, host);
  using Use = RaceShadow::Use;
  const Access access = p.memory.access;
  global.check_races(access == Access::store    ? Use::write
                     : access == Access::atomic ? Use::atomic
                                                : Use::read);
}

// Extends a value of less than a dword to its register's form. On gfx942 and gfx950 (SRAM ECC) a
// d16 load clears the other half.
uint32_t narrow(const MemoryTraits& m, uint32_t value) {
  const unsigned bits = m.bytes * 8u;
  if (m.sign_extend) value = uint32_t(int32_t(value << (32 - bits)) >> (32 - bits));
  if (m.d16) value &= 0xffff;
  return m.high ? value << 16 : value;
}

// Whether all active lanes access all bytes of the instruction.
bool is_complete(const WaveState& w, const Prepared& p, const Addresses& a, const Host& host) {
  bool complete = true;
  for (uint64_t left = w.wave.exec(); left; left &= left - 1) {
    const int lane = std::countr_zero(left);
    complete &= host[lane] && a.in_range[lane] == p.memory.bytes;
  }
  return complete;
}

void count(Workgroup& g, Counts::Level level, uint64_t lanes, uint32_t bytes) {
  g.counts.bytes[level] += uint64_t(std::popcount(lanes)) * bytes;
}
// Counts the bytes that are read; scratch counts as global memory.
void count_reads(Workgroup& g, const WaveState& w, const Addresses& a, uint32_t bytes) {
  count(g, Counts::global_read, w.wave.exec() & ~a.lds, bytes);
  count(g, Counts::lds_read, a.lds, bytes);
}
void count_writes(Workgroup& g, const WaveState& w, const Addresses& a, uint32_t bytes) {
  count(g, Counts::global_write, w.wave.exec() & ~a.lds, bytes);
  count(g, Counts::lds_write, a.lds, bytes);
}

void issue(WaveState& w, const Prepared& p, InFlight& f) {
  if (f.count) {
    if (w.pending.range({f.first, f.count})) [[unlikely]]
      w.waits.supersede(f);
    poison(w, f);
  }
  if (p.memory.space == Space::flat)
    w.waits.issue_flat(f);
  else
    w.waits.issue_vector(f);
}

void load(Workgroup& g, WaveState& w, const Prepared& p, uint32_t index, const Addresses& a) {
  InFlight& f = w.waits.take();
  Host host;
  find_memory(g, w, p, index, a, f, host);
  f.what = InFlight::What::load;
  f.instruction = index;
  f.lanes = w.wave.exec();
  f.first = p.writes[0].first;
  f.count = p.writes[0].count;
  const bool small = p.memory.bytes < 4;
  const bool done = is_complete(w, p, a, host) && for_dwords(p.memory.bytes, [&](auto dwords) {
                      load_lanes<dwords>([&](int lane) { return host[lane]; }, f.lanes, f.data);
                    });
  for (uint64_t left = done ? 0 : f.lanes; left; left &= left - 1) {
    const int lane = std::countr_zero(left);
    uint32_t value[4] = {};
    if (host[lane]) std::memcpy(value, host[lane], a.in_range[lane]);
    if (small) value[0] = narrow(p.memory, value[0]);
    for (int d = 0; d < f.count; ++d) f.data[d][lane] = value[d];
  }
  count_reads(g, w, a, p.memory.bytes);
  issue(w, p, f);
}

void store(Workgroup& g, WaveState& w, const Prepared& p, uint32_t index, const Addresses& a) {
  InFlight& f = w.waits.take();
  f.instruction = index;
  Host host;
  find_memory(g, w, p, index, a, f, host);
  const int row = row_of(p.instruction->src[1]);
  const int dwords = (p.memory.bytes + 3) / 4;
  const bool done =
      is_complete(w, p, a, host) && for_dwords(p.memory.bytes, [&](auto count) {
        store_lanes<count>([&](int lane) { return host[lane]; }, w.wave.exec(), w.wave.vgpr + row);
      });
  for (uint64_t left = done ? 0 : w.wave.exec(); left; left &= left - 1) {
    const int lane = std::countr_zero(left);
    if (!host[lane]) continue;
    uint32_t value[4];
    for (int d = 0; d < dwords; ++d) value[d] = w.wave.vgpr[row + d][lane];
    if (p.memory.high) value[0] >>= 16;
    std::memcpy(host[lane], value, a.in_range[lane]);
  }
  if (w.wave.exec() & ~(a.scratch | a.lds)) w.order.store();
  count_writes(g, w, a, p.memory.bytes);
  issue(w, p, f);
}

void atomic(Workgroup& g, WaveState& w, const Prepared& p, uint32_t index, const Addresses& a) {
  InFlight& f = w.waits.take();
  f.instruction = index;
  Host host;
  find_memory(g, w, p, index, a, f, host);
  const uint32_t bytes = p.memory.bytes, dwords = bytes / 4;
  const int row = row_of(p.instruction->src[1]);
  const bool swaps = p.memory.atomic == Atomic::cmpswap;
  f.lanes = w.wave.exec();
  if (p.num_writes) {
    f.what = InFlight::What::load;
    f.first = p.writes[0].first;
    f.count = p.writes[0].count;
  }
  const bool releases = g.has_released(w);
  std::lock_guard lock(g.launch.memory->atomics());
  for (uint64_t left = f.lanes; left; left &= left - 1) {
    const int lane = std::countr_zero(left);
    uint64_t data = 0, data2 = 0, memory = 0;
    for (uint32_t d = 0; d < dwords; ++d) {
      data |= uint64_t(w.wave.vgpr[row + int(d)][lane]) << 32 * d;
      if (swaps) data2 |= uint64_t(w.wave.vgpr[row + int(dwords + d)][lane]) << 32 * d;
    }
    if (swaps) std::swap(data, data2);  // global: the new value first, then the compared one
    if (host[lane]) {
      if (g.checks())
        g.launch.synchronisation->atomic(a.at[lane], g.shadow_number(), releases, w.order);
      std::memcpy(&memory, host[lane], bytes);
      const uint64_t result = apply_atomic(p.memory.atomic, bytes, memory, data, data2);
      std::memcpy(host[lane], &result, bytes);
    }
    for (uint32_t d = 0; d < f.count; ++d) f.data[d][lane] = uint32_t(memory >> 32 * d);
  }
  count_reads(g, w, a, bytes);
  count_writes(g, w, a, bytes);
  issue(w, p, f);
}

// Reports a wave's LDS accesses in flight that overlap its copy, since they are not ordered with
// it.
void check_own_lds(Workgroup& g, const WaveState& w, uint32_t index, uint32_t begin, uint32_t end) {
  w.waits.each_lds_access([&](const InFlight& f, uint32_t at, int lane) {
    if (at < end && begin < at + f.bytes)
      g.findings.add("lds-race", "copies to LDS bytes that this wave's own access in flight uses",
                     {index, f.instruction, w.index, lane, at});
  });
}

// Reports faults of a copy's LDS addresses, and records it.
void begin_copy(Workgroup& g, const WaveState& w, uint32_t index, const InFlight& f) {
  const uint32_t* to = f.lds[0];
  const auto is_outside = [&](int lane) { return uint64_t(to[lane]) + f.bytes > g.lds.size(); };
  bool inside = true;
  for (uint64_t left = f.lanes; left; left &= left - 1)
    inside &= !is_outside(std::countr_zero(left));
  if (inside && (!g.checks() || g.lds.begin_copy_lanes(to, f.lanes, f.bytes, w.index, index)))
    return;
  for (uint64_t left = f.lanes; left; left &= left - 1) {
    const int lane = std::countr_zero(left);
    if (is_outside(lane))
      g.stop("lds-out-of-bounds",
             "LDS address " + hex(to[lane]) + " of " + std::to_string(g.lds.size()) + " bytes",
             {index, -1, w.index, lane, to[lane]});
    if (!g.checks()) continue;
    const Lds::Verdict v = g.lds.begin_copy(to[lane], f.bytes, w.index, index);
    if (v.fault != Lds::Verdict::Fault::none)
      g.findings.add("lds-race",
                     "copies to LDS bytes that wave " + std::to_string(v.wave) +
                         " uses without a barrier or a wait in between",
                     {index, v.instruction, w.index, lane, to[lane]});
  }
}

// Starts a copy to LDS at M0 + the immediate offset + the lane's place. Data are read and written
// when a wait forces the copy.
void copy(Workgroup& g, WaveState& w, const Prepared& p, uint32_t index, const Addresses& a) {
  const uint32_t bytes = p.memory.bytes;
  const uint32_t base = w.wave.sgpr[kSgprM0] + uint32_t(p.instruction->offset);
  if (bytes < 4)
    g.stop("unsupported-instruction", "a copy to LDS of less than a dword",
           {index, -1, w.index, -1, base});
  InFlight& f = w.waits.take();
  Host host;
  find_memory(g, w, p, index, a, f, host);
  f.what = InFlight::What::copy;
  f.instruction = index;
  f.lanes = w.wave.exec();
  f.bytes = uint8_t(bytes);
  if (base % 4 != 0)
    g.stop("misaligned", "a copy to LDS address " + hex(base), {index, -1, w.index, -1, base});
  if (g.checks()) check_own_lds(g, w, index, base, base + kLanes * bytes);
  for (uint64_t left = f.lanes; left; left &= left - 1) {
    const int lane = std::countr_zero(left);
    f.lds[0][lane] = base + uint32_t(lane) * bytes;
    f.from[lane] = host[lane];
    f.data[0][lane] = a.in_range[lane];
  }
  begin_copy(g, w, index, f);
  count(g, Counts::lds_copy, f.lanes, bytes);
  issue(w, p, f);
}

}  // namespace

void execute_vector_memory(Workgroup& g, WaveState& w, const Prepared& p, uint32_t index) {
  if (!p.memory.supported)
    g.stop("unsupported-instruction", "not emulated", {index, -1, w.index, -1, 0});
  Addresses a;
  find_addresses(g, w, p, index, a);
  switch (p.memory.access) {
    case Access::store: return store(g, w, p, index, a);
    case Access::atomic: return atomic(g, w, p, index, a);
    case Access::copy: return copy(g, w, p, index, a);
    default: return load(g, w, p, index, a);
  }
}

}  // namespace hk::emulator
