// Executes DS instructions: reads, writes and atomics of LDS, and exchanges between lanes.
#include <bit>
#include <cstring>

#include "memory/atomics.hpp"
#include "memory/lane_data.hpp"
#include "memory/lds_access.hpp"
#include "memory/lds_phases.hpp"
#include "machine/workgroup.hpp"

namespace hk::emulator {
namespace {

struct LdsInstruction {
  Workgroup& g;
  WaveState& w;
  const Prepared& p;
  uint32_t index;
  InFlight& f;

  const Instruction& in() const { return *p.instruction; }
  uint32_t* row(const Operand& o) const {
    return w.wave.vgpr[o.index + (o.kind == Kind::agpr ? 256 : 0)];
  }

  // Fills f.lds; ends the workgroup for an address that is out of bounds or misaligned.
  void addresses() {
    f.lds_lanes = f.lanes;
    const uint32_t* base = row(in().src[0]);
    const uint32_t bytes = p.memory.bytes;
    const uint32_t unit = p.memory.accesses == 2 ? bytes * (p.memory.strided64 ? 64 : 1) : 1;
    const uint32_t offsets[2] = {uint32_t(in().offset) * unit, uint32_t(in().offset1) * unit};
    for (int a = 0; a < f.accesses; ++a)
      for (int lane = 0; lane < kLanes; ++lane) f.lds[a][lane] = base[lane] + offsets[a];
    // 12 and 16 bytes are aligned to 16, as in LLVM without unaligned access
    LdsAccess(g, w, p, index, f).check_bounds(bytes == 12 ? 16 : bytes);
  }

  void check(bool read, bool write) { LdsAccess(g, w, p, index, f).check_races(read, write); }

  void phases(bool write) {
    LdsPhases n;
    if (g.launch.kernel->arch != Arch::gfx950 || f.accesses != 1) return;
    if (!count_phases(write, f.bytes, f.lds[0], f.lanes, n)) return;
    g.counts.phases[index][0] += n.taken;
    g.counts.phases[index][1] += n.needed;
    if (g.recorder) g.recorder->lds(w.index, n.taken, n.needed);
  }

  void count(Counts::Level level) {
    g.counts.bytes[level] += uint64_t(std::popcount(f.lanes)) * f.bytes * f.accesses;
  }

  void destination() {
    f.what = InFlight::What::load;
    f.first = p.writes[0].first;
    f.count = p.writes[0].count;
  }

  uint32_t narrow(uint32_t value) const {
    const unsigned bits = p.memory.bytes * 8u;
    if (p.memory.sign_extend) value = uint32_t(int32_t(value << (32 - bits)) >> (32 - bits));
    if (p.memory.d16) value &= 0xffff;  // the other half is cleared (SRAM ECC)
    return p.memory.high ? value << 16 : value;
  }

  void read() {
    addresses();
    check(true, false);
    phases(false);
    count(Counts::lds_read);
    destination();
    for (int a = 0; a < f.accesses; ++a) {  // dwords of inactive lanes never land
      const auto at = [&](int lane) { return g.lds.at(f.lds[a][lane]); };
      const bool whole = for_dwords(
          f.bytes, [&](auto dwords) { load_lanes<dwords>(at, f.lanes, f.data + a * dwords); });
      for (uint64_t left = whole ? 0 : f.lanes; left; left &= left - 1) {
        const int lane = std::countr_zero(left);
        uint32_t value = 0;
        std::memcpy(&value, at(lane), f.bytes);
        f.data[a][lane] = narrow(value);
      }
    }
    poison(w, f);
  }

  // Transposes: in each group of 16 lanes, which cover rows of 16 elements, lane i gets column i.
  // The rows are 4 of 16-bit, 8 of 8-bit or 16 of 4-bit elements.
  void transpose() {
    addresses();
    check(true, false);
    count(Counts::lds_read);
    destination();
    uint64_t stored[kLanes];  // elements in LDS; NaN for inactive lanes
    std::memset(stored, 0xff, sizeof stored);
    for (uint64_t left = f.lanes; left; left &= left - 1) {
      const int lane = std::countr_zero(left);
      std::memcpy(&stored[lane], g.lds.at(f.lds[0][lane]), 8);
    }
    const int bits = p.memory.transposed_bits, of_lane = 64 / bits, lanes_of_row = 16 / of_lane;
    for (int lane = 0; lane < kLanes; ++lane) {
      const int group = lane & ~15, column = lane & 15;
      uint64_t value = 0;
      for (int row = 0; row < of_lane; ++row) {
        const uint64_t from = stored[group + lanes_of_row * row + column / of_lane];
        const uint64_t element = from >> column % of_lane * bits & ((1ull << bits) - 1);
        value |= element << row * bits;
      }
      f.data[0][lane] = uint32_t(value);
      f.data[1][lane] = uint32_t(value >> 32);
    }
    poison(w, f);
  }

  void write() {
    addresses();
    check(false, true);
    phases(true);
    count(Counts::lds_write);
    for (int a = 0; a < f.accesses; ++a) {
      const auto* data = reinterpret_cast<const uint32_t (*)[kLanes]>(row(in().src[1 + a]));
      const auto at = [&](int lane) { return g.lds.at(f.lds[a][lane]); };
      const bool whole =
          for_dwords(f.bytes, [&](auto dwords) { store_lanes<dwords>(at, f.lanes, data); });
      for (uint64_t left = whole ? 0 : f.lanes; left; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const uint32_t value = p.memory.high ? data[0][lane] >> 16 : data[0][lane];
        std::memcpy(at(lane), &value, f.bytes);
      }
    }
  }

  void atomic() {
    addresses();
    check(true, true);
    count(Counts::lds_read);
    count(Counts::lds_write);
    const uint32_t dwords = f.bytes / 4;
    const uint32_t* data = row(in().src[1]);
    const uint32_t* data2 = in().num_src > 2 ? row(in().src[2]) : nullptr;
    const auto value = [&](const uint32_t* rows, int lane) {
      uint64_t v = 0;
      for (uint32_t d = 0; rows && d < dwords; ++d)
        v |= uint64_t(rows[d * kLanes + lane]) << 32 * d;
      return v;
    };
    if (p.num_writes) destination();
    for (uint64_t left = f.lanes; left; left &= left - 1) {
      const int lane = std::countr_zero(left);
      uint64_t memory = 0;
      std::byte* at = g.lds.at(f.lds[0][lane]);
      std::memcpy(&memory, at, f.bytes);
      const uint64_t result =
          apply_atomic(p.memory.atomic, f.bytes, memory, value(data, lane), value(data2, lane));
      std::memcpy(at, &result, f.bytes);
      for (uint32_t d = 0; d < f.count; ++d) f.data[d][lane] = uint32_t(memory >> 32 * d);
    }
    if (f.count) poison(w, f);
  }

  // Exchanges registers between lanes without touching LDS. Inactive lanes give 0.
  void exchange() {
    destination();
    uint32_t* out = f.data[0];
    std::memset(out, 0, sizeof f.data[0]);
    const uint32_t offset = uint32_t(in().offset);
    for (uint64_t left = f.lanes; left; left &= left - 1) {
      const int lane = std::countr_zero(left);
      const uint32_t* source = row(in().src[p.memory.access == Access::swizzle ? 0 : 1]);
      if (p.memory.access == Access::permute) {
        const uint32_t to = (row(in().src[0])[lane] + offset) / 4 % kLanes;
        out[to] = source[lane];
        continue;
      }
      const int from = p.memory.access == Access::swizzle
                           ? swizzled(lane, offset)
                           : int((row(in().src[0])[lane] + offset) / 4 % kLanes);
      out[lane] = f.lanes >> from & 1 ? source[from] : 0;
    }
    poison(w, f);
  }

  // Source lane of ds_swizzle_b32. With bit 15 it is a quad permutation, otherwise ((lane & and) |
  // or) ^ xor within 32 lanes.
  static int swizzled(int lane, uint32_t pattern) {
    if (pattern & 0x8000) return (lane & ~3) | int(pattern >> 2 * (lane & 3) & 3);
    const int within =
        (((lane & 31) & int(pattern & 31)) | int(pattern >> 5 & 31)) ^ int(pattern >> 10 & 31);
    return (lane & ~31) | within;
  }
};

}  // namespace

void execute_lds(Workgroup& g, WaveState& w, const Prepared& p, uint32_t index) {
  const bool fft_swizzle = p.memory.access == Access::swizzle && p.instruction->offset >= 0xc000;
  if (!p.memory.supported || fft_swizzle)
    g.stop("unsupported-instruction", "not emulated", {index, -1, w.index, -1, 0});
  InFlight& f = w.waits.take();
  f.instruction = index;
  f.lanes = w.wave.exec();
  f.bytes = p.memory.bytes;
  f.accesses = p.memory.accesses;
  LdsInstruction access{g, w, p, index, f};
  switch (p.memory.access) {
    case Access::store: access.write(); break;
    case Access::atomic: access.atomic(); break;
    case Access::transpose: access.transpose(); break;
    case Access::swizzle:
    case Access::permute:
    case Access::bpermute: access.exchange(); break;
    default: access.read(); break;
  }
  w.waits.issue_lds(f);
}

}  // namespace hk::emulator
