#include "timing/loop.hpp"

#include <map>

namespace hk::emulator::timing {

Loop steady_loop(const Trace& trace) {
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> taken;  // from, to
  for (const WorkgroupTrace& workgroup : trace.workgroups)
    for (const WaveTrace& wave : workgroup.waves)
      for (size_t i = 1; i < wave.size(); ++i)
        if (wave[i].instruction <= wave[i - 1].instruction)
          ++taken[{wave[i - 1].instruction, wave[i].instruction}];
  Loop loop;
  uint64_t most = 0;
  for (const auto& [jump, times] : taken) {
    const uint32_t length = jump.first + 1 - jump.second;
    if (times * length <= most) continue;
    most = times * length;
    loop = {jump.second, jump.first + 1};
  }
  return loop;
}

}  // namespace hk::emulator::timing
