#include "memory/lds.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace hk::emulator {
namespace {

constexpr std::byte kPoison{0xff};  // NaN in bf16, f16 and f32

// Mask of the bytes that an access touches in each cell; 15: whole cells.
uint32_t byte_mask(uint32_t address, uint32_t bytes) {
  return bytes >= 4 ? 15u : ((1u << bytes) - 1) << (address & 3) & 15u;
}

}  // namespace

void Lds::start(size_t bytes) {
  const size_t cells = (bytes + 3) / 4 + 8;
  if (cells > cells_.size()) {
    data_.resize(cells * 4);
    cells_.resize(cells);
  }
  bytes_ = bytes;
  std::fill(data_.begin(), data_.begin() + long(cells * 4), kPoison);
  std::fill(cells_.begin(), cells_.begin() + long(cells), Cell{});
  barrier();
}

void Lds::barrier() {
  if (++epoch_ < kInFlight - 1) return;
  for (Cell& c : cells_) {
    c.read = 0;
    if (epoch_of(c.write) != kInFlight) c.write = 0;
  }
  epoch_ = 1;
}

template <int kCells>
uint64_t Lds::read_lanes_of(const uint32_t* addresses, uint64_t lanes, uint32_t wave, uint32_t at) {
  const uint32_t now = epoch_ << 8, mine = stamp(wave);
  uint64_t suspects = 0;
  for (uint64_t left = lanes; left; left &= left - 1) {
    const int lane = std::countr_zero(left);
    Cell* const c = &cells_[addresses[lane] / 4];
    uint32_t newest = 0, all = 15;
    for (int i = 0; i < kCells; ++i) {
      newest = std::max(newest, c[i].write);
      all &= c[i].write_at;
      const uint32_t old = c[i].read;
      const bool others = old >= now && (old & (0xf0 | kSeveral)) != (mine & 0xf0);
      c[i].read = mine | (others ? kSeveral : 0);
      c[i].read_at = at;
    }
    suspects |= uint64_t(newest >= now || all != 15) << lane;
  }
  return suspects;
}

template <int kCells>
Lds::Verdict Lds::read_cells(uint32_t cell, uint32_t wave, uint32_t at) {
  const uint32_t address = 4 * cell;
  if (!read_lanes_of<kCells>(&address, 1, wave, at)) return {};
  if (Verdict v = race_of_read(cell, kCells, wave, 15); v.fault != Verdict::Fault::none) return v;
  for (int i = 0; i < kCells; ++i)
    if (cells_[cell + uint32_t(i)].written() != 15) return {Verdict::Fault::unwritten, 0, 0};
  return {};
}

Lds::Verdict Lds::race_of_read(uint32_t cell, uint32_t cells, uint32_t wave, uint32_t mask) const {
  for (uint32_t i = cell; i < cell + cells; ++i) {
    const Cell& c = cells_[i];
    if (epoch_of(c.write) == kInFlight)
      return {Verdict::Fault::in_flight, wave_of(c.write), c.writer()};
    if (epoch_of(c.write) >= epoch_ && wave_of(c.write) != wave && (c.write & mask))
      return {Verdict::Fault::race, wave_of(c.write), c.writer()};
  }
  return {};
}

Lds::Verdict Lds::race_of_write(uint32_t cell, uint32_t cells, uint32_t wave, uint32_t mask) const {
  if (Verdict v = race_of_read(cell, cells, wave, mask); v.fault != Verdict::Fault::none) return v;
  for (uint32_t i = cell; i < cell + cells; ++i) {
    const Cell& c = cells_[i];
    if (epoch_of(c.read) >= epoch_ && (wave_of(c.read) != wave || (c.read & kSeveral)))
      return {Verdict::Fault::race, wave_of(c.read), c.read_at};
  }
  return {};
}

template <int kCells>
Lds::Verdict Lds::write_cells(uint32_t cell, uint32_t wave, uint32_t at, uint32_t epoch) {
  const uint32_t now = epoch_ << 8, mark = epoch << 8 | wave << 4 | 15;
  Cell* const c = &cells_[cell];
  uint32_t newest = 0;
  for (int i = 0; i < kCells; ++i) newest = std::max({newest, c[i].write, c[i].read});
  Verdict v;
  if (newest >= now) [[unlikely]]
    v = race_of_write(cell, kCells, wave, 15);
  for (int i = 0; i < kCells; ++i) {
    c[i].write = mark;
    c[i].write_at = at << 4 | 15;
  }
  return v;
}

Lds::Verdict Lds::read(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at) {
  const uint32_t cell = address / 4;
  if (address % 4 == 0) {
    if (bytes == 16) return read_cells<4>(cell, wave, at);
    if (bytes == 8) return read_cells<2>(cell, wave, at);
    if (bytes == 4) return read_cells<1>(cell, wave, at);
    if (bytes == 12) return read_cells<3>(cell, wave, at);
  }
  const uint32_t mask = byte_mask(address, bytes);
  const Verdict v = race_of_read(cell, 1, wave, mask);
  read_again(address, bytes, wave, at);
  if (v.fault != Verdict::Fault::none) return v;
  if ((cells_[cell].written() & mask) != mask) return {Verdict::Fault::unwritten, 0, 0};
  return {};
}

uint64_t Lds::read_lanes(const uint32_t* addresses, uint64_t lanes, uint32_t bytes, uint32_t wave,
                         uint32_t at) {
  if (bytes == 16) return read_lanes_of<4>(addresses, lanes, wave, at);
  if (bytes == 8) return read_lanes_of<2>(addresses, lanes, wave, at);
  if (bytes == 4) return read_lanes_of<1>(addresses, lanes, wave, at);
  return lanes;
}

Lds::Verdict Lds::write_any(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at,
                            uint32_t epoch) {
  const uint32_t cell = address / 4;
  if (address % 4 == 0) {
    if (bytes == 16) return write_cells<4>(cell, wave, at, epoch);
    if (bytes == 8) return write_cells<2>(cell, wave, at, epoch);
    if (bytes == 4) return write_cells<1>(cell, wave, at, epoch);
    if (bytes == 12) return write_cells<3>(cell, wave, at, epoch);
  }
  const uint32_t mask = byte_mask(address, bytes);
  const Verdict v = race_of_write(cell, 1, wave, mask);
  Cell& c = cells_[cell];
  const uint32_t same = epoch_of(c.write) == epoch ? c.write & 15 : 0;
  c.write = epoch << 8 | wave << 4 | same | mask;
  c.write_at = at << 4 | c.written() | mask;
  return v;
}

Lds::Verdict Lds::write(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at) {
  return write_any(address, bytes, wave, at, epoch_);
}

Lds::Verdict Lds::begin_copy(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at) {
  return write_any(address, bytes, wave, at, kInFlight);
}

void Lds::end_copy(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at) {
  write_again(address, bytes, wave, at);
}

void Lds::read_again(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at) {
  for (uint32_t i = address / 4; i < (address + bytes + 3) / 4; ++i) {
    Cell& c = cells_[i];
    const bool others =
        epoch_of(c.read) == epoch_ && (wave_of(c.read) != wave || (c.read & kSeveral));
    c.read = stamp(wave) | (others ? kSeveral : 0);
    c.read_at = at;
  }
}

void Lds::write_again(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at) {
  for (uint32_t i = address / 4; i < (address + bytes + 3) / 4; ++i) {
    cells_[i].write = stamp(wave) | byte_mask(address, bytes);
    cells_[i].write_at = at << 4 | cells_[i].written();
  }
}

namespace {

// Lanes that ds_read_b128 serves together: {0-3, 12-15, 20-27}, {4-11, 16-19, 28-31}, and both +
// 32.
constexpr uint64_t kRead128[] = {0x0ff0f00full, 0xf00f0ff0ull, 0x0ff0f00full << 32,
                                 0xf00f0ff0ull << 32};
constexpr uint64_t kRead64[] = {0xffffffffull, 0xffffffffull << 32};
constexpr uint64_t kWrite64[] = {0xffffull, 0xffffull << 16, 0xffffull << 32, 0xffffull << 48};

// Phases of one group of lanes: the largest number of different addresses on the same banks. A slot
// is the banks that one lane uses; addresses are aligned to the width.
uint32_t phases_of_group(uint64_t lanes, const uint32_t* addresses, unsigned bytes,
                         unsigned slots) {
  uint32_t used = 0;
  bool conflict = false;
  for (uint64_t left = lanes; left; left &= left - 1) {
    const uint32_t slot = addresses[std::countr_zero(left)] / bytes % slots;
    conflict |= used >> slot & 1;
    used |= 1u << slot;
  }
  if (!conflict) return used != 0;
  uint32_t seen[32][64], count[32] = {}, most = 1;
  for (uint64_t left = lanes; left; left &= left - 1) {
    const uint32_t address = addresses[std::countr_zero(left)], slot = address / bytes % slots;
    uint32_t* end = seen[slot] + count[slot];
    if (std::find(seen[slot], end, address) != end) continue;  // one read serves both lanes
    *end = address;
    most = std::max(most, ++count[slot]);
  }
  return most;
}

}  // namespace

bool count_phases(bool write, unsigned bytes, const uint32_t* addresses, uint64_t lanes,
                  LdsPhases& phases) {
  const uint64_t *groups, *end;
  unsigned slots;
  if (!write && bytes == 16)
    groups = kRead128, end = std::end(kRead128), slots = 16;
  else if (!write && bytes == 8)
    groups = kRead64, end = std::end(kRead64), slots = 32;
  else if (write && bytes == 8)
    groups = kWrite64, end = std::end(kWrite64), slots = 16;
  else
    return false;
  for (; groups != end; ++groups) {
    phases.taken += phases_of_group(*groups & lanes, addresses, bytes, slots);
    phases.needed += (*groups & lanes) != 0;
  }
  return true;
}

}  // namespace hk::emulator
