#include "memory/memory.hpp"

#include <algorithm>
#include <stdexcept>

namespace hk::emulator {

Address Memory::map(void* host, size_t bytes, std::string name) {
  std::lock_guard lock(mutex_);
  const size_t wanted = (bytes >> kSlotBits) + 2;
  auto is_free = [&](size_t slot) {
    if (slot + wanted > kSlots) return false;
    return std::all_of(&slots_[slot], &slots_[slot] + wanted, [](Region* r) { return !r; });
  };
  // next fit, so that an unmapped address stays invalid for a long time
  size_t tried = 0;
  while (tried < kSlots && !is_free(next_)) {
    ++tried;
    next_ = next_ % (kSlots - 1) + 1;
  }
  if (tried == kSlots) throw std::length_error("emulator: no address space for '" + name + "'");
  auto region = std::make_unique<Region>();
  // the device address keeps the host's alignment within 256 bytes
  region->address = (Address(next_) << kSlotBits) + (Address(1) << (kSlotBits - 1)) +
                    (reinterpret_cast<uintptr_t>(host) & 255);
  region->bytes = bytes;
  region->host = static_cast<std::byte*>(host);
  region->name = std::move(name);
  region->shadow.reserve(region->address, bytes);
  std::fill_n(&slots_[next_], wanted, region.get());
  next_ = next_ % (kSlots - 1) + 1;
  const Address address = region->address;
  regions_[address] = std::move(region);
  return address;
}

void Memory::unmap(Address address) {
  std::lock_guard lock(mutex_);
  const auto found = regions_.find(address);
  if (found == regions_.end())
    throw std::invalid_argument("emulator: address " + std::to_string(address) +
                                " was not returned by map(), or is already unmapped");
  std::replace(slots_.begin(), slots_.end(), found->second.get(), static_cast<Region*>(nullptr));
  regions_.erase(found);
}

uint32_t Memory::begin_launch(uint64_t workgroups) {
  std::lock_guard lock(mutex_);
  if (launched_ + workgroups >= 1ull << 31)
    throw std::length_error("emulator: 2^31 workgroups launched; make a new machine");
  const uint32_t first = launched_;
  launched_ += uint32_t(workgroups);
  return first;
}

}  // namespace hk::emulator
