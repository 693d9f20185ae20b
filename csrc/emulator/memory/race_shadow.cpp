#include "memory/race_shadow.hpp"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace hk::emulator {
namespace {

uint32_t load(const uint32_t& cell) { return __atomic_load_n(&cell, __ATOMIC_RELAXED); }
void store(uint32_t& cell, uint32_t value) { __atomic_store_n(&cell, value, __ATOMIC_RELAXED); }

// Four cells. Processors load and store each of them at once, as relaxed atomics do.
typedef int32_t Four __attribute__((vector_size(16)));
typedef int64_t Two __attribute__((vector_size(16)));

Four load_four(const uint32_t* cells) {
  Four four;
  std::memcpy(&four, cells, sizeof four);
  return four;
}
void store_four(uint32_t* cells, Four four) { std::memcpy(cells, &four, sizeof four); }
Four workgroups_of(Four cells) { return cells >> 1 & 0x7fffffff; }
bool any(Four mask) {
  const Two halves = Two(mask);
  return (halves[0] | halves[1]) != 0;
}
bool all(Four mask) { return !any(~mask); }

bool is_other(uint32_t workgroup, uint32_t self, uint32_t first) {
  return workgroup >= first && workgroup != self;
}
Four is_other(Four workgroup, uint32_t self, uint32_t first) {
  return (workgroup >= int32_t(first)) & (workgroup != int32_t(self));
}

// Whether another workgroup of this launch wrote one of the cells, or they are split.
bool any_written(const uint32_t* cells, size_t count, uint32_t self, uint32_t first) {
  Four found{};
  size_t i = 0;
  for (; i + 4 <= count; i += 4)
    found |= is_other(workgroups_of(load_four(cells + i)), self, first);
  bool more = any(found);
  for (; i < count; ++i) more |= is_other(load(cells[i]) >> 1, self, first);
  return more;
}

// Whether another workgroup of this launch read one of the cells.
bool any_read(const uint32_t* cells, size_t count, uint32_t self, uint32_t first) {
  Four found{};
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const Four cell = load_four(cells + i), reader = workgroups_of(cell);
    found |= (reader >= int32_t(first)) & ((reader != int32_t(self)) | -(cell & 1));
  }
  bool more = any(found);
  for (; i < count; ++i) {
    const uint32_t cell = load(cells[i]), reader = cell >> 1;
    more |= reader >= first && (reader != self || (cell & 1));
  }
  return more;
}

}  // namespace

RaceShadow::Cells RaceShadow::reserve_cells(size_t count) {
  void* at = mmap(nullptr, 2 * count * sizeof(uint32_t), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  auto* cells = static_cast<uint32_t*>(at);
  return {cells, cells + count};
}

RaceShadow::~RaceShadow() {
  if (dwords_.written) munmap(dwords_.written, 2 * count_ * sizeof(uint32_t));
  if (bytes_.written) munmap(bytes_.written, 8 * count_ * sizeof(uint32_t));
}

void RaceShadow::reserve(uint64_t address, size_t bytes) {
  skew_ = uint32_t(address % 4);
  count_ = bytes / 4 + 8;
  dwords_ = reserve_cells(count_);
}

bool RaceShadow::is_split(size_t offset, size_t bytes) const {
  for (size_t i = (offset + skew_) / 4; i < (offset + skew_ + bytes + 3) / 4; ++i)
    if (load(dwords_.written[i]) != kSplit) return false;
  return true;
}

void RaceShadow::split(size_t offset, size_t bytes) {
  if (!bytes_.written) bytes_ = reserve_cells(4 * count_);
  for (size_t i = (offset + skew_) / 4; i < (offset + skew_ + bytes + 3) / 4; ++i) {
    if (dwords_.written[i] == kSplit) continue;
    for (size_t byte = 4 * i; byte < 4 * i + 4; ++byte) {
      bytes_.written[byte] = dwords_.written[i];
      bytes_.read[byte] = dwords_.read[i];
    }
    dwords_.written[i] = kSplit;
  }
}

// Calls body(written, read) for the cells of an access. Returns the last result that is not 0.
template <class Body>
uint32_t RaceShadow::each(size_t offset, size_t bytes, Body&& body) const {
  uint32_t conflict = 0;
  const size_t begin = offset + skew_, end = begin + bytes;
  for (size_t byte = begin; byte < end;) {
    const size_t dword = byte / 4;
    const bool split = load(dwords_.written[dword]) == kSplit;
    const uint32_t found = split ? body(bytes_.written[byte], bytes_.read[byte])
                                 : body(dwords_.written[dword], dwords_.read[dword]);
    if (found) conflict = found;
    byte = split ? byte + 1 : 4 * dword + 4;
  }
  return conflict;
}

uint32_t RaceShadow::note(Access a, size_t offset, size_t bytes) {
  return each(offset, bytes, [&](uint32_t& written, uint32_t& read) -> uint32_t {
    if (a.use == Use::read) {
      const uint32_t old = load(read);
      if (old >> 1 != a.self) store(read, a.self << 1 | (old >> 1 >= a.first ? kSeveral : 0));
      return 0;
    }
    const uint32_t old = load(written), writer = old >> 1;
    const bool both_atomic = a.use == Use::atomic && (old & kAtomic);
    store(written, a.self << 1 | (a.use == Use::atomic ? kAtomic : 0));
    return is_other(writer, a.self, a.first) && !both_atomic ? writer : 0;
  });
}

uint32_t RaceShadow::look(Access a, size_t offset, size_t bytes) const {
  return each(offset, bytes, [&](const uint32_t& written, const uint32_t& read) -> uint32_t {
    const uint32_t old = load(written), writer = old >> 1;
    const bool both_atomic = a.use == Use::atomic && (old & kAtomic);
    const uint32_t conflict = is_other(writer, a.self, a.first) && !both_atomic ? writer : 0;
    if (a.use == Use::read) return conflict;
    const uint32_t last = load(read), reader = last >> 1;
    return reader >= a.first && (reader != a.self || (last & kSeveral)) ? reader : conflict;
  });
}

// The cells of an access: those of its dwords, or those of its bytes if all its dwords are split.
RaceShadow::Cells RaceShadow::cells_of(size_t offset, size_t bytes, size_t& count) const {
  const size_t begin = offset + skew_, dword = begin / 4;
  if (load(dwords_.written[dword]) == kSplit && is_split(offset, bytes)) {
    count = bytes;
    return {bytes_.written + begin, bytes_.read + begin};
  }
  count = (begin + bytes + 3) / 4 - dword;
  return {dwords_.written + dword, dwords_.read + dword};
}

bool RaceShadow::note_all(Access a, size_t offset, size_t bytes) {
  size_t count;
  const Cells cells = cells_of(offset, bytes, count);
  if (a.use == Use::atomic || any_written(cells.written, count, a.self, a.first)) return false;
  const Four mine = Four{} + int32_t(a.self << 1);
  size_t i = 0;
  if (a.use == Use::write) {
    for (; i + 4 <= count; i += 4) store_four(cells.written + i, mine);
    for (; i < count; ++i) store(cells.written[i], a.self << 1);
    return true;
  }
  const auto read_one = [&](uint32_t& cell) {
    const uint32_t reader = load(cell) >> 1;
    if (reader != a.self) store(cell, a.self << 1 | (reader >= a.first ? kSeveral : 0));
  };
  for (; i + 4 <= count; i += 4) {
    const Four readers = workgroups_of(load_four(cells.read + i));
    const Four read = readers == int32_t(a.self);
    if (all(read)) continue;
    if (!any(read))
      store_four(cells.read + i, mine | ((readers >= int32_t(a.first)) & int32_t(kSeveral)));
    else  // cells that this workgroup has read already may get another thread's reader meanwhile
      for (size_t j = i; j < i + 4; ++j) read_one(cells.read[j]);
  }
  for (; i < count; ++i) read_one(cells.read[i]);
  return true;
}

bool RaceShadow::look_at_all(Access a, size_t offset, size_t bytes) const {
  size_t count;
  const Cells cells = cells_of(offset, bytes, count);
  if (a.use == Use::atomic || any_written(cells.written, count, a.self, a.first)) return false;
  return a.use == Use::read || !any_read(cells.read, count, a.self, a.first);
}

}  // namespace hk::emulator
