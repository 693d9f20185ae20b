#include "memory/global_access.hpp"

#include <algorithm>
#include <atomic>
#include <shared_mutex>
#include <span>

#include "machine/hidden_arguments.hpp"

namespace hk::emulator {

// Returns the region of an access; null: it reported that none is mapped.
Region* GlobalAccess::find(Address address, uint32_t bytes, int lane) {
  Region* const region = group_.launch.memory->find(address);
  if (region && region->contains(address, bytes)) return region;
  std::string what = std::to_string(bytes) + " bytes at " + hex(address) + " are not mapped";
  if (region)
    what += ": '" + region->name + "' has " + std::to_string(region->bytes) + " bytes, this is " +
            std::to_string(int64_t(address - region->address)) + " from its begin";
  if (const char* absent = absent_at(address))
    what += std::string(": the emulator does not provide ") + absent;
  group_.findings.add("out-of-bounds", what, {index_, -1, wave_.index, lane, address});
  return nullptr;
}

void GlobalAccess::find_runs() {
  const Touch* before = nullptr;
  for (int i = 0; i < count_; before = &touches_[i++]) {
    const Touch& t = touches_[i];
    whole_ &= t.region->shadow.has_whole_dwords(t.offset, t.bytes);
    if (!before || before->region != t.region || before->offset + before->bytes != t.offset)
      runs_[num_runs_++] = i;
  }
  runs_[num_runs_] = count_;
}

// Gives a cell to each byte of the accesses.
void GlobalAccess::split_cells() {
  std::shared_mutex& shadows = group_.launch.memory->shadows();
  const auto begin = touches_, end = touches_ + count_;
  {
    std::shared_lock lock(shadows);
    if (std::all_of(begin, end,
                    [](const Touch& t) { return t.region->shadow.is_split(t.offset, t.bytes); }))
      return;
  }
  std::unique_lock lock(shadows);
  std::for_each(begin, end, [](const Touch& t) { t.region->shadow.split(t.offset, t.bytes); });
}

template <class All, class Some>
void GlobalAccess::each_run(RaceShadow::Access access, All all, Some some) {
  const bool ordered = has_acquired();
  for (int run = 0; run < num_runs_; ++run) {
    const std::span touches(touches_ + runs_[run], touches_ + runs_[run + 1]);
    const Touch &first = touches.front(), &last = touches.back();
    const size_t bytes = last.offset + last.bytes - first.offset;
    if (!ordered && (first.region->shadow.*all)(access, first.offset, bytes)) continue;
    for (const Touch& t : touches) {
      const uint32_t step = ordered ? 1 : t.bytes;
      for (uint32_t done = 0; done < t.bytes; done += step) {
        const uint32_t other = (t.region->shadow.*some)(access, t.offset + done, step);
        if (!other || wave_.order.has_acquired(other)) continue;
        report(t, access.use, other);
        break;
      }
    }
  }
}

void GlobalAccess::check_races(RaceShadow::Use use) {
  if (!group_.checks() || count_ == 0) return;
  find_runs();
  // Each byte is checked if workgroups were acquired: their conflicts do not count, and a cell
  // names only one workgroup.
  if (!whole_ || has_acquired()) split_cells();
  const RaceShadow::Access access{use, group_.shadow_number(), group_.launch.first_workgroup};
  std::shared_lock lock(group_.launch.memory->shadows());
  each_run(access, &RaceShadow::note_all, &RaceShadow::note);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  each_run(access, &RaceShadow::look_at_all, &RaceShadow::look);
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
