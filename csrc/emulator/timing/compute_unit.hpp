// One CU in time: replays traces of workgroups on four SIMDs.
//
// A SIMD has an issue slot every 4 clocks. In it each of its waves may issue one instruction, and
// each unit takes one, from the wave with the highest priority (s_setprio), then the oldest. Vector
// ALU and matrix unit are the SIMD's own; LDS and memory path are the CU's. A slot of the CU runs
// its workgroups one after another.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "timing/events.hpp"
#include "timing/memory_path.hpp"
#include "timing/operation.hpp"
#include "timing/stall.hpp"

namespace hk::emulator::timing {

struct InstructionTime {
  Unit unit = Unit::none;
  uint64_t executed = 0, issue = 0;  // clocks of its issue slots
  std::array<uint64_t, kStalls> stalled{};
};

struct WorkgroupTime {
  uint32_t trace = 0, slot = 0;  // which trace it replays, where
  uint64_t start = 0, end = 0;
  uint64_t loop_start = 0, loop_end = 0;  // of the instructions marked as the loop; 0: none
  uint64_t wave_clocks = 0;               // from its start to the end of each wave, all together
};

struct CuTime {
  uint64_t clocks = 0;
  std::vector<WorkgroupTime> workgroups;
  std::vector<InstructionTime> instructions;  // by index in the program, all waves together
  // Clocks for which units worked, and for which their ports were taken; SIMDs' averaged over four.
  double vector_busy = 0, matrix_busy = 0, matrix_issue = 0, lds_busy = 0, scalar_busy = 0;
  MemoryUse memory;
  double matrix_flops = 0;  // executed, useful or not
  Events events;
};

// What a CU is given.
struct CuWork {
  const Trace* trace = nullptr;
  std::vector<std::vector<uint32_t>> slots;  // per slot: traces, one after another
  std::vector<uint64_t> starts;              // of each slot's first workgroup
  MemoryShare share{};
  uint32_t loop_begin = 0, loop_end = 0;    // of the program: the loop
  uint64_t events_from = 0, events_to = 0;  // clocks of which to keep the events
};

CuTime replay(const CuWork& work, const Parameters& parameters);

}  // namespace hk::emulator::timing
