#include "memory/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <stdexcept>

namespace hk::emulator {
namespace {

uint32_t* lazy_cells(size_t count) {
  void* at = mmap(nullptr, count * sizeof(uint32_t), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  return static_cast<uint32_t*>(at);
}

uint32_t load(const uint32_t& cell) { return __atomic_load_n(&cell, __ATOMIC_RELAXED); }
void store(uint32_t& cell, uint32_t value) { __atomic_store_n(&cell, value, __ATOMIC_RELAXED); }

}  // namespace

RaceShadow::~RaceShadow() {
  if (written_) munmap(written_, bytes_);
  if (read_) munmap(read_, bytes_);
}

void RaceShadow::reserve(size_t bytes) {
  const size_t cells = bytes + 16;
  written_ = lazy_cells(cells);
  read_ = lazy_cells(cells);
  bytes_ = cells * sizeof(uint32_t);
}

uint32_t RaceShadow::note(Use use, size_t offset, size_t bytes, uint32_t self, uint32_t first) {
  uint32_t conflict = 0;
  for (size_t i = offset; i < offset + bytes; ++i) {
    if (use == Use::read) {
      const uint32_t old = load(read_[i]);
      if (old >> 1 != self) store(read_[i], self << 1 | (old >> 1 >= first ? kSeveral : 0));
    } else {
      const uint32_t old = load(written_[i]), writer = old >> 1;
      const bool both_atomic = use == Use::atomic && (old & kAtomic);
      if (writer >= first && writer != self && !both_atomic) conflict = writer;
      store(written_[i], self << 1 | (use == Use::atomic ? kAtomic : 0));
    }
  }
  return conflict;
}

uint32_t RaceShadow::look(Use use, size_t offset, size_t bytes, uint32_t self,
                          uint32_t first) const {
  uint32_t conflict = 0;
  for (size_t i = offset; i < offset + bytes; ++i) {
    const uint32_t written = load(written_[i]), writer = written >> 1;
    const bool both_atomic = use == Use::atomic && (written & kAtomic);
    if (writer >= first && writer != self && !both_atomic) conflict = writer;
    if (use == Use::read) continue;
    const uint32_t read = load(read_[i]), reader = read >> 1;
    if (reader >= first && (reader != self || (read & kSeveral))) conflict = reader;
  }
  return conflict;
}

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
  region->shadow.reserve(bytes);
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
