#include "timing/recorded.hpp"

#include <limits>
#include <stdexcept>
#include <string>

#include "machine/prepared.hpp"

namespace hk::emulator::timing {
namespace {

uint16_t fact(uint32_t value, const char* name) {
  if (value > std::numeric_limits<uint16_t>::max())
    throw std::invalid_argument(std::string(name) + " = " + std::to_string(value) +
                                "; valid: 0 to 65535");
  return uint16_t(value);
}

uint32_t index_of(const Program& program, uint32_t pc) {
  const std::vector<int32_t>& indices = *program.index_of_pc;
  const int32_t index = pc % 4 == 0 && pc / 4 < indices.size() ? indices[pc / 4] : -1;
  if (index < 0)
    throw std::invalid_argument("pc = " + std::to_string(pc) + ": no instruction begins there");
  return uint32_t(index);
}

WaveTrace wave_trace(const Program& program, const RecordedWave& wave) {
  WaveTrace steps;
  steps.reserve(wave.size());
  for (const RecordedStep& s : wave)
    steps.push_back({index_of(program, s.pc), fact(s.taken, "taken"), fact(s.needed, "needed"),
                     fact(s.shared, "shared")});
  if (steps.empty() || program.instructions[steps.back().instruction].action != Action::end)
    throw std::invalid_argument("a wave's last step is no s_endpgm");
  return steps;
}

}  // namespace

Trace recorded_trace(const Kernel& kernel, const std::vector<RecordedWorkgroup>& workgroups) {
  Trace trace;
  trace.program = prepared(kernel);
  trace.registers = kernel.vgprs + kernel.agprs;
  trace.lds_bytes = kernel.static_lds;
  for (const RecordedWorkgroup& waves : workgroups) {
    WorkgroupTrace& workgroup = trace.workgroups.emplace_back();
    workgroup.number = uint32_t(trace.workgroups.size() - 1);
    for (const RecordedWave& wave : waves)
      workgroup.waves.push_back(wave_trace(*trace.program, wave));
  }
  return trace;
}

}  // namespace hk::emulator::timing
