#include "checks/hazards.hpp"

#include <algorithm>
#include <bit>

namespace hk::emulator {
namespace {

bool overlap(Registers a, Registers b) {
  return a.first < b.first + b.count && b.first < a.first + a.count;
}

bool reads(const Prepared& p, Registers r) {
  return std::any_of(p.reads, p.reads + p.num_reads, [&](Registers x) { return overlap(x, r); });
}
bool writes(const Prepared& p, Registers r) {
  return std::any_of(p.writes, p.writes + p.num_writes, [&](Registers x) { return overlap(x, r); });
}
bool any_written_is_read(const Prepared& writer, const Prepared& reader) {
  return std::any_of(writer.writes, writer.writes + writer.num_writes,
                     [&](Registers r) { return reads(reader, r); });
}

bool touches(const uint64_t (&mask)[2], int encoding, int count = 1) {
  bool any = false;
  for (int i = encoding; i < encoding + count; ++i) any |= mask[i / 64] >> i % 64 & 1;
  return any;
}

struct Check {
  WaveState& w;
  const Prepared& p;
  uint32_t index;
  Arch arch;
  Findings& findings;

  uint64_t now() const { return w.recent.now; }
  // Wait states between an earlier instruction and this one.
  int since(uint64_t at) const { return int(std::min<uint64_t>(now() - at - 1, 1000)); }

  void demand(int needed, int have, const Prepared* other, const std::string& why) {
    if (have >= needed) return;
    const int64_t by = other ? int64_t(other->index) : -1;
    findings.add(
        other && other->hazard.matrix ? "matrix-hazard" : "hazard",
        why + " needs " + std::to_string(needed) + " wait states, has " + std::to_string(have),
        {index, by, w.index, -1, 0});
  }

  // Calls f(instruction, wait states) for each recent instruction, or only for those of a cause.
  template <class F>
  void each_recent(Cause cause, int states, F&& f) {
    if (w.recent.within(cause, states)) [[unlikely]]
      each_recent(states, [&](const Prepared& other, int have) {
        if (other.hazard.causes >> int(cause) & 1) f(other, have);
      });
  }
  template <class F>
  void each_recent(int states, F&& f) {
    for (int i = 0; i < Recent::kSize; ++i) {
      const int slot = (w.recent.last - i) & (Recent::kSize - 1);
      const Prepared* other = w.recent.instruction[slot];
      if (!other) return;
      const int have = since(w.recent.at[slot]);
      if (have >= states) return;
      f(*other, have);
    }
  }

  // Additional wait state of gfx950 after an XDL instruction of more than 2 passes.
  int one_more(const HazardTraits& m) const { return arch == Arch::gfx950 && m.passes != 2; }

  // Wait states from a matrix instruction's issue to another use of the registers it writes.
  int after_matrix(const HazardTraits& m, bool read) const {
    if (m.f64) {
      const bool memory = p.hazard.vector_memory || p.hazard.lds;
      if (read && memory) return m.passes == 4 ? 9 : 18;
      if (m.passes == 4) return 6;
      return read && arch == Arch::gfx950 ? 19 : 11;
    }
    return m.passes + (m.xdl ? 3 + one_more(m) : 2);
  }
  int matrix_to_accumulator(const Prepared& by, Registers c) const {
    const HazardTraits& m = by.hazard;
    const bool same = by.writes[0].first == c.first && by.writes[0].count == c.count;
    if (m.f64) {
      if (same) return m.passes == 4 ? 4 : 0;
      if (p.hazard.xdl) return 0;
      return m.passes == 4 ? 4 : arch == Arch::gfx950 ? 17 : 9;
    }
    if (same) return m.passes == 2 ? 2 : 0;
    if (p.hazard.xdl && !m.xdl) return 0;
    if (m.xdl && p.hazard.xdl) return m.passes + 1 + (arch == Arch::gfx950);
    return m.passes + (m.xdl ? 1 + one_more(m) : 0);
  }

  // Wait states after which no use of a matrix result has to wait.
  static constexpr int kMatrixStates = 24;

  // Checks registers that a matrix instruction may have written recently.
  void after_matrix_result(Registers r, bool read, bool accumulator) {
    for (uint64_t left = w.recent_matrix.range(r); left; left &= left - 1) {
      const int row = r.first + std::countr_zero(left);
      const Prepared* by = w.matrix_by[row];
      const int have = int(uint32_t(now()) - w.matrix_at[row] - 1);
      if (have >= kMatrixStates) {
        w.recent_matrix.clear(row);
        continue;
      }
      if (p.hazard.matrix && !read) continue;  // matrix results are written in order
      const int needed =
          accumulator ? matrix_to_accumulator(*by, r) : after_matrix(by->hazard, read);
      if (have < needed)
        demand(needed, have, by,
               register_name(row) + (read ? ", a matrix result, to be read"
                                          : ", a matrix result, to be written over"));
    }
  }

  void matrix_results() {
    if (!w.recent.within(Cause::matrix, kMatrixStates)) return;
    for (int i = 0; i < p.num_reads; ++i)
      if (w.recent_matrix.range(p.reads[i])) [[unlikely]]
        after_matrix_result(p.reads[i], true, p.hazard.matrix && i == 2);
    for (int i = 0; i < p.num_writes; ++i)
      if (w.recent_matrix.range(p.writes[i])) [[unlikely]]
        after_matrix_result(p.writes[i], false, false);
  }

  void before_matrix() {
    each_recent(Cause::valu, 4, [&](const Prepared& other, int have) {
      if (touches(other.scalar_writes, kSgprExec, 2))
        demand(4, have, &other, "EXEC written by a vector instruction before a matrix instruction");
      if (!other.hazard.dot && any_written_is_read(other, p))
        demand(2, have, &other, "a vector result read by a matrix instruction");
    });
  }

  // Checks accumulators: a matrix instruction reads its own late, so it must not be overwritten
  // yet.
  void over_accumulator() {
    if (p.num_writes == 0) return;
    each_recent(Cause::accumulator, 15, [&](const Prepared& other, int have) {
      if (!writes(p, other.reads[2])) return;
      const int passes = other.hazard.passes;
      demand(passes == 2 ? 1 : passes - 1, have, &other,
             "an accumulator still read, to be written");
    });
  }

  void vector() {
    each_recent(Cause::transcendental, 1, [&](const Prepared& other, int have) {
      if (!p.hazard.transcendental && any_written_is_read(other, p))
        demand(1, have, &other, "a transcendental result read by another kind of instruction");
    });
    each_recent(Cause::partial, 1, [&](const Prepared& other, int have) {
      if (any_written_is_read(other, p) || writes_result_of(other))
        demand(1, have, &other, "part of a register written, then used");
    });
    if (p.hazard.lane_access)
      each_recent(Cause::valu, 1, [&](const Prepared& other, int have) {
        if (any_written_is_read(other, p))
          demand(1, have, &other, "a vector result read by a lane access");
      });
    each_recent(Cause::long_store, 2, [&](const Prepared& other, int have) {
      if (p.num_writes && other.num_reads > 1 && writes(p, other.reads[1]))
        demand(2, have, &other, "the data of a store wider than 8 bytes, to be written");
    });
    if (p.hazard.dpp || p.hazard.permlane_swap)
      each_recent(Cause::valu, 2, [&](const Prepared& other, int have) {
        if (any_written_is_read(other, p))
          demand(2, have, &other, "a vector result read across lanes");
      });
    if (p.hazard.dpp) after_exec(5, "EXEC written by a vector instruction before DPP");
    if (p.hazard.permlane_swap)
      after_exec(4, "EXEC written by a vector instruction before a lane swap");
    if (p.hazard.lane_access)
      after_exec(4, "EXEC written by a vector instruction before a lane access");
  }

  // Checks results of dot products: without latency they can only be the accumulator that the same
  // instruction overwrites.
  void dot_product() {
    each_recent(Cause::dot, 3, [&](const Prepared& other, int have) {
      const bool same = other.instruction->opcode == p.instruction->opcode;
      bool used = !same && writes_result_of(other);
      for (int i = 0; i < p.num_reads; ++i)
        used |= overlap(p.reads[i], other.writes[0]) && !(same && i == p.num_reads - 1);
      if (used) demand(3, have, &other, "a dot product's result used otherwise than to add to it");
    });
  }

  bool writes_result_of(const Prepared& other) const {
    return other.num_writes && writes(p, other.writes[0]);
  }

  void after_exec(int states, const char* why) {
    each_recent(Cause::exec, states,
                [&](const Prepared& other, int have) { demand(states, have, &other, why); });
  }

  // Checks SGPRs that this instruction reads and a vector instruction wrote.
  void vector_scalars() {
    const int needed = p.hazard.vector_memory ? 5 : p.hazard.div_fmas ? 4 : p.hazard.valu ? 2 : 0;
    const Operand& lane = p.instruction->src[1];
    each_recent(Cause::scalar, 5, [&](const Prepared& other, int have) {
      uint64_t both[2];
      for (int i = 0; i < 2; ++i) both[i] = other.scalar_writes[i] & p.scalar_reads[i];
      both[1] &= ~(3ull << (kSgprExec - 64));
      if (p.hazard.lane_access && lane.kind == Kind::sgpr && touches(both, lane.index))
        demand(4, have, &other, "a lane number written by a vector instruction");
      else if (both[0] | both[1])
        demand(needed, have, &other, "an SGPR written by a vector instruction");
      for (int i = 0; i < p.instruction->num_src; ++i) {
        const Kind kind = p.instruction->src[i].kind;
        const bool zero = (kind == Kind::vccz && touches(other.scalar_writes, kSgprVcc, 2)) ||
                          (kind == Kind::execz && touches(other.scalar_writes, kSgprExec, 2));
        if (zero) demand(5, have, &other, "VCCZ or EXECZ as data");
      }
    });
  }

  void scalar() {
    if (p.hazard.reads_m0_late)
      each_recent(1, [&](const Prepared& other, int have) {
        if (!other.hazard.valu && other.action == Action::compute &&
            touches(other.scalar_writes, kSgprM0))
          demand(1, have, &other, "M0 written by a scalar instruction");
      });
    const int reg = std::max(p.hazard.set_register, p.hazard.get_register);
    if (reg >= 0)
      each_recent(2, [&](const Prepared& other, int have) {
        if (other.hazard.set_register == reg)
          demand(2, have, &other, "a hardware register set before");
      });
  }
};

}  // namespace

void check_hazards(WaveState& w, const Prepared& p, uint32_t index, Arch arch, Findings& findings) {
  Check check{w, p, index, arch, findings};
  if (p.num_reads | p.num_writes) check.matrix_results();
  if (p.hazard.matrix) check.before_matrix();
  if (p.hazard.valu || p.hazard.vector_memory || p.hazard.lds) {
    check.over_accumulator();
    check.dot_product();
  }
  if (p.hazard.valu) check.vector();
  if (p.hazard.vector_memory)
    check.after_exec(5, "EXEC written by a vector instruction before a memory instruction");
  if (p.hazard.valu || p.hazard.vector_memory) check.vector_scalars();
  check.scalar();
}

void note_issue(WaveState& w, const Prepared& p) {
  const uint64_t now = w.recent.now;
  if (p.hazard.matrix) {
    const Registers d = p.writes[0];
    for (int r = d.first; r < d.first + d.count; ++r) {
      w.recent_matrix.set(r);
      w.matrix_at[r] = uint32_t(now);
      w.matrix_by[r] = &p;
    }
  }
  w.recent.push(p);
}

}  // namespace hk::emulator
