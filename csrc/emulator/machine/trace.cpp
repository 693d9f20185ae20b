#include "machine/trace.hpp"

#include <algorithm>

namespace hk::emulator {

Recorder::Recorder(uint32_t number, size_t waves) {
  trace_.number = number;
  trace_.waves.resize(waves);
}

void Recorder::lds(uint32_t wave, uint32_t taken, uint32_t needed) {
  last(wave).taken = uint16_t(taken);
  last(wave).needed = uint16_t(needed);
}

void Recorder::memory(uint32_t wave, uint64_t address, uint32_t bytes) {
  const size_t step = trace_.waves[wave].size() - 1;
  if (wave != step_wave_ || step != step_) {
    step_wave_ = wave;
    step_ = step;
    step_sectors_.clear();
  }
  for (uint64_t s = address / kSectorBytes; s <= (address + bytes - 1) / kSectorBytes; ++s) {
    // neighbouring lanes mostly touch the same sector or the next one, so search backwards
    if (std::find(step_sectors_.rbegin(), step_sectors_.rend(), s) != step_sectors_.rend())
      continue;
    step_sectors_.push_back(s);
    ++last(wave).taken;
    const auto [at, fresh] = touched_.try_emplace(s, touches_);
    const bool cached = !fresh && touches_ - at->second < kL1Sectors;
    at->second = touches_++;
    if (cached) continue;
    ++last(wave).needed;
    fetches_.push_back({s, wave, uint32_t(step)});
  }
}

void mark_shared(std::vector<WorkgroupTrace>& traces,
                 const std::vector<std::vector<Recorder::Fetch>>& fetches) {
  std::vector<std::pair<uint64_t, uint32_t>> users;  // sector, workgroup
  for (uint32_t w = 0; w < fetches.size(); ++w)
    for (const Recorder::Fetch& f : fetches[w]) users.emplace_back(f.sector, w);
  std::sort(users.begin(), users.end());
  users.erase(std::unique(users.begin(), users.end()), users.end());
  std::vector<uint64_t> shared;
  for (size_t i = 1; i < users.size(); ++i)
    if (users[i].first == users[i - 1].first && (shared.empty() || shared.back() != users[i].first))
      shared.push_back(users[i].first);
  for (uint32_t w = 0; w < fetches.size(); ++w)
    for (const Recorder::Fetch& f : fetches[w])
      traces[w].waves[f.wave][f.step].shared +=
          uint16_t(std::binary_search(shared.begin(), shared.end(), f.sector));
}

}  // namespace hk::emulator
