#include "memory/synchronisation.hpp"

namespace hk::emulator {

void MemoryOrder::join(const MemoryOrder& other) {
  known_.insert(other.known_.begin(), other.known_.end());
  acquired_.insert(other.acquired_.begin(), other.acquired_.end());
}

void MemoryOrder::meet(const MemoryOrder& all) {
  if (stores_ == Stores::released) stores_ = Stores::met;
  join(all);
}

void Synchronisation::atomic(uint64_t address, uint32_t self, bool releases, MemoryOrder& wave) {
  std::lock_guard lock(mutex_);
  Workgroups& here = released_[address];
  wave.learn(here);
  if (!releases) return;
  here.insert(self);
  here.insert(wave.acquired().begin(), wave.acquired().end());
}

}  // namespace hk::emulator
