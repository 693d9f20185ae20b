#include "memory/global_access.hpp"

#include <atomic>

#include "machine/hidden_arguments.hpp"

namespace hk::emulator {

std::byte* GlobalAccess::at(Address address, uint32_t bytes, int lane) {
  if (!last_ || !last_->contains(address, bytes)) last_ = group_.launch.memory->find(address);
  if (!last_ || !last_->contains(address, bytes)) {
    std::string what = std::to_string(bytes) + " bytes at " + hex(address) + " are not mapped";
    if (last_)
      what += ": '" + last_->name + "' has " + std::to_string(last_->bytes) + " bytes, this is " +
              std::to_string(int64_t(address - last_->address)) + " from its begin";
    if (const char* absent = absent_at(address))
      what += std::string(": the emulator does not provide ") + absent;
    group_.findings.add("out-of-bounds", what, {index_, -1, wave_.index, lane, address});
    return nullptr;
  }
  const size_t offset = address - last_->address;
  touches_[count_++] = {last_, offset, bytes, lane};
  return last_->host + offset;
}

void GlobalAccess::check_races(RaceShadow::Use use) {
  if (!group_.checks()) return;
  const uint32_t first = group_.launch.first_workgroup, self = group_.shadow_number();
  // Checks every byte if workgroups were acquired: their conflicts do not count, and the shadow
  // names only one workgroup.
  const bool ordered = !wave_.order.acquired().empty();
  const auto each = [&](auto&& conflict) {
    for (int i = 0; i < count_; ++i) {
      const Touch& t = touches_[i];
      const uint32_t step = ordered ? 1 : t.bytes;
      for (uint32_t done = 0; done < t.bytes; done += step) {
        const uint32_t other = conflict(t.region->shadow, t.offset + done, step);
        if (!other || wave_.order.has_acquired(other)) continue;
        report(t, use, other);
        break;
      }
    }
  };
  each([&](RaceShadow& shadow, size_t offset, uint32_t bytes) {
    return shadow.note(use, offset, bytes, self, first);
  });
  std::atomic_thread_fence(std::memory_order_seq_cst);
  each([&](const RaceShadow& shadow, size_t offset, uint32_t bytes) {
    return shadow.look(use, offset, bytes, self, first);
  });
}

void GlobalAccess::report(const Touch& t, RaceShadow::Use use, uint32_t other) {
  group_.findings.add("global-race",
                      std::string(use == RaceShadow::Use::read ? "reads" : "writes") +
                          " bytes of '" + t.region->name + "' that workgroup " +
                          std::to_string(other - group_.launch.first_workgroup) +
                          " of the same launch " +
                          (use == RaceShadow::Use::read ? "writes" : "uses"),
                      {index_, -1, wave_.index, t.lane, t.region->address + t.offset});
}

}  // namespace hk::emulator
