// The timing of one CU: replays traces of workgroups on four SIMDs.
//
// A SIMD has an issue slot every 4 clocks. In a slot each of its waves may issue one instruction,
// and each unit takes one, from the wave with the highest priority (s_setprio), then the oldest.
// Each SIMD has a vector ALU and a matrix unit; the CU's SIMDs share the LDS and the memory path. A
// slot of the CU runs its workgroups one after another.
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
  uint64_t executed = 0, issue = 0;  // issue: clocks of its issue slots
  std::array<uint64_t, kStalls> stalled{};
};

struct WorkgroupTime {
  uint32_t trace = 0, slot = 0;  // number of the trace that it replays, and its slot
  uint64_t start = 0, end = 0;
  uint64_t loop_start = 0, loop_end = 0;  // of the marked loop's instructions; 0: none
  uint64_t wave_clocks = 0;               // from its start to each wave's end, summed over waves
};

struct CuTime {
  uint64_t clocks = 0;
  std::vector<WorkgroupTime> workgroups;
  std::vector<InstructionTime> instructions;  // by index in the program, summed over waves
  // Clocks in which units worked, or their ports were taken; units of SIMDs are averaged over four.
  double vector_busy = 0, matrix_busy = 0, matrix_issue = 0, lds_busy = 0, scalar_busy = 0;
  MemoryUse memory;
  double matrix_flops = 0;  // FLOPs executed, useful or not
  Events events;
};

// The SIMD of a wave, and the clocks by which it begins after its workgroup.
struct WavePlace {
  uint32_t simd, delay;
};

// The work of a CU.
struct CuWork {
  const Trace* trace = nullptr;
  std::vector<std::vector<uint32_t>> slots;  // traces that each slot runs one after another
  std::vector<uint64_t> starts;              // start of each slot's first workgroup
  MemoryShare share{};
  uint32_t loop_begin = 0, loop_end = 0;       // the loop, as instructions of the program
  uint64_t events_from = 0, events_to = 0;     // clocks in which events are kept
  std::vector<std::vector<WavePlace>> places;  // by trace and wave; empty: waves go round the SIMDs
  // Clocks from the end of a slot's workgroup to each trace's start; empty: `workgroup_start`.
  std::vector<uint64_t> gaps;
  // A replay of a trace: the launch begins with it, and waves hold their places until their stores
  // are done. Elsewhere `launch` and `workgroup_start` have that.
  bool traced = false;
};

CuTime replay(const CuWork& work, const Parameters& parameters);

}  // namespace hk::emulator::timing
