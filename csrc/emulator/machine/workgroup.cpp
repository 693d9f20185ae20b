#include "machine/workgroup.hpp"

#include <algorithm>
#include <bit>

#include "checks/hazards.hpp"
#include "semantics/semantics.hpp"

namespace hk::emulator {

Workgroup::Workgroup(const Launch& shared)
    : launch(shared), findings(*shared.kernel, shared.options.max_findings),
      counts(shared.program->instructions.size()) {
  const uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
  const uint32_t count = (threads + kLanes - 1) / kLanes;
  for (uint32_t i = 0; i < count; ++i) {
    waves.push_back(std::make_unique<WaveState>());
    waves.back()->index = i;
    std::fill_n(waves.back()->wave.vgpr[0], 512 * kLanes, kPoisonedRegister);
  }
  scratch.resize(size_t(count) * kLanes * launch.kernel->scratch);
}

void Workgroup::stop(const char* check, const std::string& message, const Place& place) {
  findings.add(check, message, place);
  throw Stop{};
}

bool Workgroup::run(uint32_t which) {
  number = which;
  findings.start(which);
  try {
    start();
    turns();
    return true;
  } catch (const Stop&) {
    return false;
  }
}

void Workgroup::start() {
  random_.seed(launch.options.seed * 0x9e3779b97f4a7c15ull + number);
  lds.start(launch.lds_bytes);
  std::fill(scratch.begin(), scratch.end(), std::byte{0xff});
  for (auto& wave : waves) set_initial_state(*wave, launch, number);
}

// Runs waves in turns: each turn a random wave runs a burst of instructions of random length.
void Workgroup::turns() {
  std::vector<WaveState*> ready;
  for (;;) {
    ready.clear();
    bool waiting = false;
    for (auto& w : waves) {
      waiting |= w->at_barrier;
      if (!w->ended && !w->at_barrier) ready.push_back(w.get());
    }
    if (ready.empty() && !waiting) return;
    if (ready.empty()) {
      release_barrier();
      continue;
    }
    const uint64_t draw = random_();
    // mostly short turns, some long ones that let a wave run far ahead
    const uint32_t length = 1 + uint32_t(draw >> 32) % ((draw & 7) == 0 ? 1024 : 64);
    burst(*ready[(draw >> 8 & 0xffff) % ready.size()], length);
  }
}

void Workgroup::burst(WaveState& w, uint32_t length) {
  try {
    while (length-- != 0 && step(w)) {
    }
  } catch (const Unsupported& error) {
    stop("unsupported-instruction", error.what(), place(w, uint32_t(w.wave.pc - 1)));
  }
  if (w.executed > launch.options.max_instructions)
    stop("endless-loop", "no end after " + std::to_string(w.executed) + " instructions",
         place(w, uint32_t(w.wave.pc)));
}

bool Workgroup::step(WaveState& w) {
  const uint64_t index = w.wave.pc;
  const auto& text = launch.program->instructions;
  if (index >= text.size())
    stop("bad-jump", "the program runs past its end", place(w, uint32_t(text.size() - 1)));
  const bool indexed = w.wave.mode & kGprIndexEnable;
  const Prepared& p = indexed ? indexing_.apply(*this, w, text[index]) : text[index];
  ++w.executed;
  ++counts.executed[index];
  if (recorder) [[unlikely]]
    recorder->step(w.index, uint32_t(index));
  if (checks()) {
    check_registers(w, p, uint32_t(index), launch.limits, findings);
    check_hazards(w, p, uint32_t(index), launch.kernel->arch, findings);
    note_issue(w, p);
  }
  w.wave.pc = index + 1;
  switch (p.action) {
    case Action::compute:
      note_writes(w, p);  // before EXEC changes
      p.execute(w.wave, *p.instruction);
      return true;
    case Action::nop: return true;
    case Action::lds: execute_lds(*this, w, p, uint32_t(index)); return true;
    case Action::vector_memory:
      make_room(w);
      execute_vector_memory(*this, w, p, uint32_t(index));
      return true;
    case Action::scalar_load: execute_scalar_load(*this, w, p, uint32_t(index)); return true;
    default: return control(w, p, uint32_t(index));
  }
}

// Lands the loads that a full counter forces before one more is issued.
void Workgroup::make_room(WaveState& w) {
  if (w.waits.vector().size() >= Waits::kMostVector) wait(w, int(Waits::kMostVector) - 1, -1);
}

// Reports copies to LDS in flight at the end of a wave. By the time that they land, the LDS may be
// another workgroup's.
void Workgroup::find_copies_at_end(const WaveState& w, uint32_t index) {
  for (const InFlight* f : w.waits.vector())
    if (f->what == InFlight::What::copy) {
      findings.add("copy-in-flight", "the wave ends while its copy to LDS is in flight",
                   {index, int64_t(f->instruction), w.index, -1, 0});
      return;
    }
}

bool Workgroup::control(WaveState& w, const Prepared& p, uint32_t index) {
  const Instruction& in = *p.instruction;
  auto branch_if = [&](bool taken) {
    if (recorder) recorder->branch(w.index, taken);
    if (!taken) return true;
    if (p.target < 0) stop("bad-jump", "the branch leaves the program", place(w, index));
    w.wave.pc = uint64_t(p.target);
    return true;
  };
  auto scalar_pair = [&](const Operand& o) { return w.wave.pair(o.index); };
  const Address next = kTextAddress + in.pc + in.size;
  note_writes(w, p);
  switch (p.action) {
    case Action::wait: {
      const WaitFields fields = wait_fields(uint32_t(in.simm));
      wait(w, fields.vmcnt, fields.lgkmcnt);
      return true;
    }
    case Action::write_back: w.order.write_back(); return true;
    case Action::invalidate: w.order.invalidate(); return true;
    case Action::barrier:
      if (checks() && w.wave.exec() != w.lanes)
        findings.add("divergent-barrier", "only some lanes of the wave arrive at the barrier",
                     {index, -1, w.index, std::countr_zero(w.lanes & ~w.wave.exec()), 0});
      w.at_barrier = true;
      return false;
    case Action::end:
      if (checks()) find_copies_at_end(w, index);
      wait(w, 0, 0);  // like the hardware
      w.ended = true;
      return false;
    case Action::trap: stop("trap", "the kernel gave up (s_trap)", place(w, index));
    case Action::branch: return branch_if(true);
    case Action::branch_scc0: return branch_if(!w.wave.scc);
    case Action::branch_scc1: return branch_if(w.wave.scc);
    case Action::branch_vccz: return branch_if(w.wave.vcc() == 0);
    case Action::branch_vccnz: return branch_if(w.wave.vcc() != 0);
    case Action::branch_execz: return branch_if(w.wave.exec() == 0);
    case Action::branch_execnz: return branch_if(w.wave.exec() != 0);
    case Action::getpc: w.wave.set_pair(in.dst[0].index, next); return true;
    case Action::call: w.wave.set_pair(in.dst[0].index, next); return branch_if(true);
    case Action::setpc: jump(w, scalar_pair(in.src[0]), index); return true;
    case Action::swappc: {
      const Address target = scalar_pair(in.src[0]);
      w.wave.set_pair(in.dst[0].index, next);
      jump(w, target, index);
      return true;
    }
    case Action::time:  // the wave's own count, so that every run gives the same
      w.wave.set_pair(in.dst[0].index, w.executed);
      return true;
    default:
      stop("unknown-instruction", "the emulator does not know this instruction", place(w, index));
  }
}

void Workgroup::jump(WaveState& w, Address address, uint32_t index) {
  const auto& table = *launch.program->index_of_pc;
  const uint64_t at = (address - kTextAddress) / 4;
  if (address < kTextAddress || at >= table.size() || table[at] < 0)
    stop("bad-jump", "jump to " + hex(address), place(w, index));
  w.wave.pc = uint64_t(table[at]);
}

// Reports a barrier that waves reach although others have ended. All running waves have arrived at
// a barrier. The hardware waits only for running waves, so that a wave may end early. Waves may
// wait at different barriers, so that they can take turns (ping-pong). The hardware also passes a
// barrier if the rest of the workgroup has ended.
void Workgroup::find_missing_waves() {
  const auto ended = std::ranges::find_if(waves, [](const auto& w) { return w->ended; });
  if (ended == waves.end() || !checks()) return;
  const auto waiting = std::ranges::find_if(waves, [](const auto& w) { return w->at_barrier; });
  findings.add("divergent-barrier",
               "waits for wave " + std::to_string((*ended)->index) + ", which has ended",
               place(**waiting, uint32_t((*waiting)->wave.pc - 1)));
}

void Workgroup::release_barrier() {
  find_missing_waves();
  lds.barrier();
  if (checks()) {
    MemoryOrder all;
    for (const auto& w : waves) all.join(w->order);
    for (auto& w : waves) w->order.meet(all);
  }
  for (auto& w : waves) {
    w->at_barrier = false;
    if (!checks()) continue;
    w->waits.each_lds_access([&](const InFlight& f, uint32_t at, int) {
      if (f.lds_writes) lds.write_again(at, f.bytes, w->index, f.instruction);
      if (f.lds_reads) lds.read_again(at, f.bytes, w->index, f.instruction);
    });
  }
}

bool Workgroup::has_released(const WaveState& wave) const {
  using Stores = MemoryOrder::Stores;
  bool any = false;
  for (const auto& w : waves) {
    const Stores stores = w->order.stores();
    if (stores == Stores::none) continue;
    if (stores != Stores::met && !(stores == Stores::released && w.get() == &wave)) return false;
    any = true;
  }
  return any;
}

void Workgroup::wait(WaveState& w, int vmcnt, int lgkmcnt) {
  if (vmcnt == 0) w.order.wait();
  w.waits.wait(vmcnt, lgkmcnt, [&](InFlight& f) { land(*this, w, f); });
}

}  // namespace hk::emulator
