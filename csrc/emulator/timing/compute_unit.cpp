#include "timing/compute_unit.hpp"

#include <algorithm>
#include <stdexcept>

#include "timing/group_clock.hpp"
#include "timing/lds_path.hpp"
#include "timing/occupancy.hpp"
#include "timing/scalar_path.hpp"
#include "timing/simd.hpp"

namespace hk::emulator::timing {
namespace {

using P = Parameter;
constexpr uint32_t kSlot = 4;                // clocks from one of a SIMD's issue slots to the next
constexpr int kMostVm = 63, kMostLgkm = 15;  // largest values of the counters

class ComputeUnit {
 public:
  ComputeUnit(const CuWork& work, const Parameters& parameters)
      : work_(work), parameters_(parameters), program_(work.trace->program->instructions),
        operations_(operations(*work.trace->program, parameters)),
        memory_(parameters, work.share, time_.events, work.traced), lds_(parameters, time_.events),
        scalar_(parameters, work.traced), forward_(parameters.whole(P::matrix_forward)),
        packed_wait_(parameters.whole(P::packed_after_matrix)) {
    for (const Operation& o : operations_) time_.instructions.push_back({o.unit, 0, 0, {}});
    time_.events.from = work.events_from;
    time_.events.to = work.events_to;
    done_.resize(work.slots.size());
    for (uint32_t s = 0; s < work.slots.size(); ++s) start_next(s, 0);
  }

  CuTime run() {
    for (uint64_t now = 0; live_ > 0;) {
      for (uint32_t s = 0; s < kSimds; ++s) issue_slot(simds_[s], now + s);
      uint64_t wake = kNever;
      for (const Simd& simd : simds_)
        for (const WaveClock* w : simd.waves) wake = std::min(wake, w->wake);
      if (live_ > 0 && wake == kNever) throw std::logic_error("timing: every wave waits for ever");
      now = std::max(now + kSlot, wake / kSlot * kSlot);
    }
    finish();
    return std::move(time_);
  }

 private:
  // Starts the next workgroup of a slot that is free from `free` on.
  void start_next(uint32_t slot, uint64_t free) {
    if (done_[slot] == work_.slots[slot].size()) return;
    const uint32_t trace = work_.slots[slot][done_[slot]];
    const uint64_t gap =
        work_.gaps.empty() ? parameters_.whole(P::workgroup_start) : work_.gaps[trace];
    const uint64_t at = done_[slot]++ == 0 ? work_.starts[slot] : free + gap;
    const auto& traces = work_.trace->workgroups[trace].waves;
    const uint32_t number = uint32_t(groups_.size());
    GroupClock& group = groups_.emplace_back();
    time_.workgroups.push_back({trace, slot, at, 0, 0, 0, 0});
    group.running = uint32_t(traces.size());
    for (uint32_t i = 0; i < traces.size(); ++i) {
      auto wave = std::make_unique<WaveClock>();
      wave->steps = &traces[i];
      wave->group = number;
      wave->index = i;
      wave->age = ages_++;
      const WavePlace place = work_.places.empty()
                                  ? WavePlace{uint32_t((slot * traces.size() + i) % kSimds), 0}
                                  : work_.places[trace][i];
      wave->simd = place.simd;
      wave->wake = wave->seen = at + place.delay;
      simds_[wave->simd].waves.push_back(wave.get());
      simds_[wave->simd].order();
      group.waves.push_back(std::move(wave));
      ++live_;
    }
  }

  void issue_slot(Simd& simd, uint64_t now) {
    bool reorder = false, ended = false;
    for (size_t i = 0; i < simd.waves.size(); ++i) {  // waves may join during the loop
      WaveClock& w = *simd.waves[i];
      if (w.wake > now) continue;
      const TraceStep& step = (*w.steps)[w.next];
      const Operation& o = operations_[step.instruction];
      Stall why{};
      const uint64_t ready = ready_at(simd, w, step, o, now, why);
      account(w, now);
      w.why = why;
      if (ready > now) {
        w.wake = ready;
        continue;
      }
      issue(simd, w, step, o, now);
      reorder |= o.role == Role::priority;
      ended |= o.role == Role::end;
    }
    if (ended) std::erase_if(simd.waves, [](const WaveClock* w) { return w->steps == nullptr; });
    if (reorder) simd.order();
    while (!finished_.empty()) {
      const auto [slot, free] = finished_.back();
      finished_.pop_back();
      start_next(slot, std::max(now, free));
    }
  }

  // Accounts a wave's time since `seen` to the reason why it waited.
  void account(WaveClock& w, uint64_t now) {
    if (now <= w.seen) return;
    const uint32_t instruction = (*w.steps)[w.next].instruction;
    time_.instructions[instruction].stalled[size_t(w.why)] += now - w.seen;
    note(w, instruction, w.seen, now - w.seen, true, uint8_t(w.why));
    w.seen = now;
  }

  void note(const WaveClock& w, uint32_t instruction, uint64_t start, uint64_t clocks, bool waits,
            uint8_t what) {
    time_.events.add(WaveEvent{w.group, uint16_t(w.index), uint16_t(w.simd), instruction, start,
                               clocks, waits, what});
  }

  void note(const WaveClock& w, const Operation& o, uint64_t start) {
    time_.events.add(UnitEvent{o.unit, uint16_t(w.simd), start, o.busy});
  }

  // First clock at which a wave could issue, as seen at `now`. If it is later than `now`, sets
  // `why`.
  uint64_t ready_at(const Simd& simd, WaveClock& w, const TraceStep& step, const Operation& o,
                    uint64_t now, Stall& why) {
    uint64_t ready = now;
    const auto until = [&](uint64_t clock, Stall reason) {
      if (clock <= ready) return;
      ready = clock;
      why = reason;
    };
    if (o.role == Role::wait) {
      until(w.vm.at_most(o.vmcnt), Stall::vector_memory);
      until(w.lgkm.at_most(o.lgkmcnt), Stall::lds);
      return ready;
    }
    switch (o.unit) {
      case Unit::matrix:
        until(simd.matrix_free, Stall::matrix_busy);
        until(simd.vector_free, Stall::vector_busy);
        break;
      case Unit::vector:
        until(simd.vector_free, Stall::vector_busy);
        if (o.packed && packed_wait_) until(simd.matrix_free + packed_wait_, Stall::matrix_busy);
        break;
      case Unit::lds: until(lds_.free_at(now), Stall::lds_busy); break;
      case Unit::memory: until(memory_.free_at(now, step, w.age), Stall::memory_busy); break;
      default: break;
    }
    until(w.follows(o, parameters_), Stall::itself);
    if (w.last_result > now) until(w.results_ready(o, forward_), Stall::matrix_result);
    if (o.counts_vm) until(w.vm.at_most(kMostVm - 1), Stall::memory_busy);
    if (o.counts_lgkm) until(w.lgkm.at_most(kMostLgkm - 1), Stall::lds_busy);
    if (ready == now && o.unit != Unit::none && simd.taken[size_t(o.unit)] == now + 1)
      until(now + kSlot, Stall::other_wave);
    return ready;
  }

  void issue(Simd& simd, WaveClock& w, const TraceStep& step, const Operation& o, uint64_t now) {
    InstructionTime& time = time_.instructions[step.instruction];
    ++time.executed;
    time.issue += kSlot;
    w.seen = now + kSlot;
    w.wake = now + o.issue;
    w.why = Stall::itself;
    simd.taken[size_t(o.unit)] = now + 1;
    w.note_issue(o, now);
    note_loop(w, step.instruction, now);
    note(w, step.instruction, now, kSlot, false, uint8_t(o.unit));
    switch (o.unit) {
      case Unit::vector:
        simd.vector_free = now + o.busy;
        time_.vector_busy += o.busy;
        note(w, o, now);
        break;
      case Unit::matrix:
        issue_matrix(simd, w, o, now);
        time_.matrix_flops += double(program_[step.instruction].flops);
        break;
      case Unit::lds: w.lgkm.add(lds_.issue(now, step, o), true); break;
      case Unit::memory: issue_memory(w, step, o, now); break;
      case Unit::scalar_memory: w.lgkm.add(scalar_.issue(now, step.taken), false); break;
      case Unit::scalar: time_.scalar_busy += kSlot; break;
      case Unit::branch:
        if (step.taken) w.wake = now + std::max(kSlot, parameters_.whole(P::branch_taken));
        break;
      default: break;
    }
    control(w, o, now);
  }

  void control(WaveClock& w, const Operation& o, uint64_t now) {
    switch (o.role) {
      case Role::barrier: return arrive(w, now);
      case Role::end: return end(w, now);
      case Role::priority: w.priority = o.priority; break;
      case Role::wait:
        w.vm.drop_done(now);
        w.lgkm.drop_done(now);
        break;
      default: break;
    }
    // clocks of a jump or an s_nop count for itself, not for its successor
    if (w.wake > w.seen) account(w, w.wake);
    ++w.next;
  }

  void issue_matrix(Simd& simd, WaveClock& w, const Operation& o, uint64_t now) {
    simd.vector_free = now + o.port;
    simd.matrix_free = now + o.busy;
    time_.matrix_busy += o.busy;
    time_.matrix_issue += o.port;
    note(w, o, now);
    w.note_matrix(o, now + o.busy + forward_);
  }

  void issue_memory(WaveClock& w, const TraceStep& step, const Operation& o, uint64_t now) {
    const uint64_t done = memory_.issue(now, step, o.role, w.age);
    if (o.role == Role::copy) lds_.land(done, step);
    w.vm.add(done, true);
    if (o.counts_lgkm) w.lgkm.add(done, false);
  }

  void note_loop(const WaveClock& w, uint32_t instruction, uint64_t now) {
    if (instruction < work_.loop_begin || instruction >= work_.loop_end) return;
    WorkgroupTime& g = time_.workgroups[w.group];
    if (g.loop_start == 0) g.loop_start = now;
    g.loop_end = now + kSlot;
  }

  void arrive(WaveClock& w, uint64_t now) {
    w.at_barrier = true;
    w.wake = kNever;
    w.why = Stall::barrier;
    ++groups_[w.group].arrived;
    release_if_all(groups_[w.group], now);
  }

  void release_if_all(GroupClock& group, uint64_t now) {
    if (group.arrived == 0 || group.arrived < group.running) return;
    group.arrived = 0;
    const uint64_t at = now + std::max(kSlot, parameters_.whole(P::barrier_release));
    for (auto& w : group.waves) {
      if (!w->at_barrier) continue;
      w->at_barrier = false;
      w->wake = at;
      account(*w, at);
      ++w->next;
    }
  }

  void end(WaveClock& w, uint64_t now) {
    GroupClock& group = groups_[w.group];
    WorkgroupTime& time = time_.workgroups[w.group];
    time.wave_clocks += now + kSlot - time.start;
    if (work_.traced) group.stored = std::max(group.stored, w.vm.at_most(0));
    w.steps = nullptr;
    w.wake = kNever;
    --live_;
    if (--group.running > 0) return release_if_all(group, now);
    time.end = now + kSlot;
    time_.clocks = std::max(time_.clocks, time.end);
    finished_.emplace_back(time.slot, group.stored);
  }

  void finish() {
    for (double* busy :
         {&time_.vector_busy, &time_.matrix_busy, &time_.matrix_issue, &time_.scalar_busy})
      *busy /= kSimds;
    time_.lds_busy = lds_.busy;
    time_.memory = memory_.use;
  }

  const CuWork& work_;
  const Parameters& parameters_;
  const std::vector<Prepared>& program_;
  const std::vector<Operation> operations_;
  CuTime time_;
  MemoryPath memory_;
  LdsPath lds_;
  ScalarPath scalar_;
  const uint32_t forward_, packed_wait_;
  std::array<Simd, kSimds> simds_;
  std::vector<GroupClock> groups_;
  std::vector<size_t> done_;  // number of workgroups that have begun, per slot
  std::vector<std::pair<uint32_t, uint64_t>> finished_;  // slots, and clocks at which they are free
  uint64_t ages_ = 0, live_ = 0;  // waves that have begun, and those not yet ended
};

}  // namespace

CuTime replay(const CuWork& work, const Parameters& parameters) {
  return ComputeUnit(work, parameters).run();
}

}  // namespace hk::emulator::timing
