#include "timing/traffic.hpp"

#include "machine/prepared.hpp"

namespace hk::emulator::timing {
namespace {

bool non_temporal(const Prepared& p) { return p.instruction->words[0] >> 17 & 1; }

}  // namespace

std::vector<Traffic> traffic(const Trace& trace) {
  std::vector<Traffic> found;
  for (const WorkgroupTrace& workgroup : trace.workgroups) {
    Traffic& total = found.emplace_back();
    for (const WaveTrace& wave : workgroup.waves)
      for (const TraceStep& step : wave) {
        const Prepared& p = trace.program->instructions[step.instruction];
        if (p.action != Action::vector_memory) continue;
        const double bytes = double(step.needed - step.shared) * kSectorBytes;
        if (p.memory.access == Access::store) {
          total.written += bytes;
        } else {
          total.read += bytes;
          if (non_temporal(p)) total.streamed += bytes;
        }
      }
  }
  return found;
}

}  // namespace hk::emulator::timing
