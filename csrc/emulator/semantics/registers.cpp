#include "semantics/registers.hpp"

#include <algorithm>
#include <bit>

namespace hk::emulator {
namespace {

uint64_t lanes_read(const WaveState& w, const Prepared& p) {
  const uint64_t exec = w.wave.exec();
  switch (p.lanes) {
    case Lanes::all: return ~0ull;
    case Lanes::first: return exec ? exec & -exec : 1;
    case Lanes::selected: {
      const Operand& lane = p.instruction->src[1];
      const uint32_t n = lane.kind == Kind::sgpr ? w.wave.sgpr[lane.index] : uint32_t(lane.value);
      return 1ull << n % 64;
    }
    default: return exec;
  }
}

// Whether the SGPR that a spill saves was never written: LLVM saves whole tuples, of which a program
// may use a part.
bool saves_unwritten(const WaveState& w, const Prepared& p) {
  if (p.spill != Spill::to_lane) return false;
  const Operand& from = p.instruction->src[0];
  return from.kind == Kind::sgpr && !(w.scalar_written[from.index / 64] >> from.index % 64 & 1);
}

bool writes_row(const InFlight& f, int row) {
  return f.what != InFlight::What::scalar && row >= f.first && row < f.first + f.count;
}

// Index of the instruction in flight that will write a register; -1: there is none.
int64_t pending_writer(const WaveState& w, int row) {
  for (const auto* queue : {&w.waits.vector(), &w.waits.lds()})
    for (const InFlight* f : *queue)
      if (writes_row(*f, row)) return f->instruction;
  return -1;
}

// Whether the results in flight for a register come before that of the vector load `p`.
bool lands_after_all(const WaveState& w, const Prepared& p, int row) {
  if (p.action != Action::vector_memory || p.memory.space == Space::flat) return false;
  for (const InFlight* f : w.waits.lds())
    if (writes_row(*f, row)) return false;
  for (const InFlight* f : w.waits.vector())
    if (f->any_order() && writes_row(*f, row)) return false;
  return true;
}

int64_t pending_scalar_writer(const WaveState& w, int encoding) {
  for (const InFlight* f : w.waits.lds())
    if (f->what == InFlight::What::scalar && encoding >= f->first && encoding < f->first + f->count)
      return f->instruction;
  return -1;
}

uint64_t bit_in_half(int encoding, int half) {
  return encoding / 64 == half ? 1ull << encoding % 64 : 0;
}

struct Check {
  WaveState& w;
  const Prepared& p;
  uint32_t index;
  const RegisterLimits& limits;
  Findings& findings;

  Place place(int64_t other, int lane = -1) const { return {index, other, w.index, lane, 0}; }

  void pending(Registers r, bool write) {
    for (uint64_t left = w.pending.range(r); left; left &= left - 1) {
      const int row = r.first + std::countr_zero(left);
      if (write && lands_after_all(w, p, row)) continue;
      findings.add(write ? "overwritten-in-flight" : "unwaited-register",
                   register_name(row) + (write ? " is written while a result for it is in flight"
                                               : " is read before the wait for its result"),
                   place(pending_writer(w, row)));
    }
  }

  void unwritten(Registers r, uint64_t lanes) {
    for (uint64_t left = w.partial.range(r); left; left &= left - 1) {
      const int row = r.first + std::countr_zero(left);
      // lanes to come are no fault of the instruction that waits for them
      uint64_t missing = lanes & ~w.written[row];
      if (missing && p.spill == Spill::from_lane)
        if (const auto saved = w.saved_unwritten.find(row); saved != w.saved_unwritten.end())
          missing &= ~saved->second;
      if (missing && !w.pending.range({uint16_t(row), 1}))
        findings.add("unwritten-register", register_name(row) + " is read before it was written",
                     place(-1, std::countr_zero(missing)));
    }
  }

  void allocated(Registers r) {
    const int last = r.first + r.count - 1;
    const bool agpr = r.first >= 256;
    const int limit = agpr ? 256 + limits.agprs : limits.vgprs;
    if (last < limit) return;
    findings.add("register-bounds",
                 register_name(last) + " is not allocated: the kernel has " +
                     std::to_string(limits.vgprs) + " VGPRs and " + std::to_string(limits.agprs) +
                     " AGPRs",
                 place(-1));
    throw Stop{};
  }

  void scalars() {
    for (int half = 0; half < 2; ++half) {
      const uint64_t reads = p.scalar_reads[half], writes = p.scalar_writes[half];
      for (uint64_t left = (reads | writes) & w.scalar_pending[half]; left; left &= left - 1) {
        const int s = 64 * half + std::countr_zero(left);
        const bool read = reads >> s % 64 & 1;
        findings.add(read ? "unwaited-register" : "overwritten-in-flight",
                     scalar_name(s) + (read ? " is read before the wait for its result"
                                            : " is written while a result for it is in flight"),
                     place(pending_scalar_writer(w, s)));
      }
      uint64_t unknown = reads & ~(w.scalar_written[half] | w.scalar_pending[half]);
      if (unknown && saves_unwritten(w, p))
        unknown &= ~bit_in_half(p.instruction->src[0].index, half);
      for (uint64_t left = unknown; left; left &= left - 1)
        findings.add(
            "unwritten-register",
            scalar_name(64 * half + std::countr_zero(left)) + " is read before it was written",
            place(-1));
    }
    if (((p.scalar_reads[0] | p.scalar_writes[0]) & limits.no_sgprs[0]) ||
        ((p.scalar_reads[1] | p.scalar_writes[1]) & limits.no_sgprs[1])) {
      findings.add("register-bounds",
                   "an SGPR is not allocated: the kernel has " + std::to_string(limits.sgprs),
                   place(-1));
      throw Stop{};
    }
  }
};

// The part of a source that the instruction's first dword depends on.
Registers judged(const Prepared& p, int read) {
  return p.into_high >> read & 1 ? Registers{p.reads[read].first, 1} : p.reads[read];
}

// Whether no operand has a fault: the quick answer for nearly all instructions. Those for which it
// is no may still have none.
bool is_faultless(const WaveState& w, const Prepared& p, const RegisterLimits& limits) {
  uint64_t faults = (p.vgprs > limits.vgprs) | (p.agprs > limits.agprs);
  faults |= p.reads_scc & !w.scc_written;
  for (int half = 0; half < 2; ++half) {
    const uint64_t reads = p.scalar_reads[half], touched = reads | p.scalar_writes[half];
    faults |= touched & (w.scalar_pending[half] | limits.no_sgprs[half]);
    faults |= reads & ~w.scalar_written[half];
  }
  for (int i = 0; i < p.num_reads; ++i)
    faults |= w.pending.range(p.reads[i]) | w.partial.range(judged(p, i));
  for (int i = 0; i < p.num_writes; ++i) faults |= w.pending.range(p.writes[i]);
  return faults == 0;
}

}  // namespace

RegisterLimits RegisterLimits::of(const Kernel& kernel) {
  const uint32_t total = ((kernel.rsrc1 & 63) + 1) * 8;                   // granules of 8
  const uint32_t vgprs = std::min(((kernel.rsrc3 & 63) + 1) * 4, total);  // accum_offset
  // granules of 16, 6 of which are VCC, FLAT_SCRATCH and XNACK_MASK
  const uint32_t sgprs = std::min((kernel.rsrc1 >> 6 & 15) / 2 * 16 + 16, 102u);
  const uint64_t low = sgprs >= 64 ? 0 : ~0ull << sgprs, all_high = (1ull << 38) - 1;
  const uint64_t high = sgprs >= 102  ? 0
                        : sgprs >= 64 ? all_high & ~0ull << (sgprs - 64)
                                      : all_high;
  return {uint16_t(std::min(vgprs, 256u)),
          uint16_t(std::min(total - vgprs, 256u)),
          uint16_t(sgprs),
          {low, high}};
}

void check_registers(WaveState& w, const Prepared& p, uint32_t index, const RegisterLimits& limits,
                     Findings& findings) {
  if (is_faultless(w, p, limits)) [[likely]]
    return;
  Check check{w, p, index, limits, findings};
  for (int i = 0; i < p.num_reads; ++i) {
    const Registers r = p.reads[i];
    check.allocated(r);
    if (w.pending.range(r)) [[unlikely]]
      check.pending(r, false);
    if (w.partial.range(judged(p, i))) [[unlikely]]
      check.unwritten(judged(p, i), lanes_read(w, p));
  }
  for (int i = 0; i < p.num_writes; ++i) {
    const Registers r = p.writes[i];
    check.allocated(r);
    if (w.pending.range(r)) [[unlikely]]
      check.pending(r, true);
  }
  check.scalars();
  if (p.reads_scc && !w.scc_written)
    findings.add("unwritten-register", "scc is read before it was written", check.place(-1));
}

void note_written(WaveState& w, int row, uint64_t lanes) {
  w.written[row] |= lanes;
  if (w.written[row] == ~0ull) w.partial.clear(row);
}

namespace {

// Lanes of the result's second dword, and of its carry, that depend on a dword never written.
uint64_t lanes_still_unwritten(const WaveState& w, const Prepared& p) {
  uint64_t missing = 0;
  for (int i = 0; i < p.num_reads; ++i)
    if (p.into_high >> i & 1) missing |= ~w.written[p.reads[i].first + 1];
  return missing & w.wave.exec();
}

uint64_t lane_written(const WaveState& w, const Prepared& p) {  // by v_writelane
  const Operand& lane = p.instruction->src[1];
  return 1ull << (lane.kind == Kind::sgpr ? w.wave.sgpr[lane.index] : lane.value) % 64;
}

// Marks the lane to which an SGPR never written was saved as unwritten.
void save_unwritten(WaveState& w, const Prepared& p) {
  const int row = p.writes[0].first;
  w.written[row] &= ~lane_written(w, p);
  w.partial.set(row);
  w.saved_unwritten[row] |= lane_written(w, p);
}

// Marks the SGPR that comes back from such a lane as unwritten: a finding follows if it is used.
void restore_unwritten(WaveState& w, const Prepared& p) {
  if (p.num_reads == 0 || !(lanes_read(w, p) & ~w.written[p.reads[0].first])) return;
  for (int i = 0; i < 2; ++i) w.scalar_written[i] &= ~p.scalar_writes[i];
}

void unwrite_high(WaveState& w, const Prepared& p, uint64_t lanes) {
  const int row = p.writes[0].first + 1;
  w.written[row] &= ~lanes;
  w.partial.set(row);
  for (int i = 0; i < 2; ++i) w.scalar_written[i] &= ~p.scalar_writes[i];
}

}  // namespace

void note_writes(WaveState& w, const Prepared& p) {
  const uint64_t unknown = p.into_high ? lanes_still_unwritten(w, p) : 0;
  const bool saved_unwritten = saves_unwritten(w, p);
  w.scalar_written[0] |= p.scalar_writes[0];
  w.scalar_written[1] |= p.scalar_writes[1];
  w.scc_written |= p.writes_scc;
  if (p.spill == Spill::from_lane) restore_unwritten(w, p);
  if (p.num_writes == 0) return;
  uint64_t lanes = p.writes_all_lanes ? ~0ull : w.wave.exec();
  if (p.spill == Spill::to_lane) lanes = lane_written(w, p);
  for (int i = 0; i < p.num_writes; ++i)
    if (w.partial.range(p.writes[i]))
      for (int r = p.writes[i].first; r < p.writes[i].first + p.writes[i].count; ++r)
        note_written(w, r, lanes);
  if (saved_unwritten) [[unlikely]]
    save_unwritten(w, p);
  if (unknown) [[unlikely]]
    unwrite_high(w, p, unknown);
}

}  // namespace hk::emulator
