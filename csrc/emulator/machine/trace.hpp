// Traces: the instructions that the waves of a workgroup executed, in order. Each step has facts
// for the timing model that the program does not show: LDS phases, memory sectors, branches taken.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace hk::emulator {

struct Program;

// Bytes of a sector of global memory, which one lookup of the vector L1 serves (AMD's optimisation
// guides: 64 bytes per clock and CU).
inline constexpr uint32_t kSectorBytes = 64;

struct TraceStep {
  uint32_t instruction = 0;  // index in the program
  // LDS: phases that the access took, and the fewest that it needs; 0: not modelled.
  // Vector memory: sectors touched, and those of them that the workgroup did not touch just before
  // and that are therefore not in its L1. Branches: `taken` is 1 or 0. Scalar memory: `taken` is the
  // number of the cache line, of recorded traces.
  uint16_t taken = 0, needed = 0;
  uint16_t shared = 0;  // those of the `needed` sectors that other traced workgroups touch, too
};

using WaveTrace = std::vector<TraceStep>;

struct WorkgroupTrace {
  uint32_t number = 0;  // index in the grid
  std::vector<WaveTrace> waves;
};

struct Trace {
  std::shared_ptr<const Program> program;
  uint32_t registers = 0;  // number per lane, AGPRs included
  size_t lds_bytes = 0;    // bytes of LDS of a workgroup
  std::vector<WorkgroupTrace> workgroups;
};

// Writes the trace of one workgroup while it runs.
class Recorder {
 public:
  Recorder(uint32_t number, size_t waves);

  void step(uint32_t wave, uint32_t instruction) { trace_.waves[wave].push_back({instruction}); }
  // These add facts to the last step of a wave:
  void branch(uint32_t wave, bool taken) { last(wave).taken = taken; }
  void lds(uint32_t wave, uint32_t taken, uint32_t needed);
  void memory(uint32_t wave, uint64_t address, uint32_t bytes);  // access of one lane

  WorkgroupTrace take() { return std::move(trace_); }
  // A sector that was fetched past the L1, and the step that fetched it.
  struct Fetch {
    uint64_t sector;
    uint32_t wave, step;
  };
  const std::vector<Fetch>& fetches() const { return fetches_; }

 private:
  static constexpr uint64_t kL1Sectors = 32 * 1024 / kSectorBytes;

  TraceStep& last(uint32_t wave) { return trace_.waves[wave].back(); }

  WorkgroupTrace trace_;
  std::vector<Fetch> fetches_;
  std::unordered_map<uint64_t, uint64_t> touched_;  // last touch of a sector, counted in touches
  uint64_t touches_ = 0;
  // State of the step that is being recorded, with its sectors.
  uint32_t step_wave_ = ~0u;
  size_t step_ = 0;
  std::vector<uint64_t> step_sectors_;
};

// Counts for each step the sectors that several of the workgroups fetch.
void mark_shared(std::vector<WorkgroupTrace>& traces,
                 const std::vector<std::vector<Recorder::Fetch>>& fetches);

}  // namespace hk::emulator
