#include "timing/loop.hpp"

#include <map>

namespace hk::emulator::timing {

Loop steady_loop(const Trace& trace) {
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> taken;  // times, by jump (from, to)
  uint64_t waves = 0;
  for (const WorkgroupTrace& workgroup : trace.workgroups)
    for (const WaveTrace& wave : workgroup.waves) {
      ++waves;
      for (size_t i = 1; i < wave.size(); ++i)
        if (wave[i].instruction <= wave[i - 1].instruction)
          ++taken[{wave[i - 1].instruction, wave[i].instruction}];
    }
  Loop loop;
  std::pair<bool, uint64_t> most;  // repeated, weight: a long jump taken once is no loop
  for (const auto& [jump, times] : taken) {
    const uint32_t length = jump.first + 1 - jump.second;
    const std::pair weight(times > waves, times * length);
    if (weight <= most) continue;
    most = weight;
    loop = {jump.second, jump.first + 1};
  }
  return loop;
}

}  // namespace hk::emulator::timing
