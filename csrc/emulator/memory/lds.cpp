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

// Words of the state of kCells dwords. Words fit in 31 bits, so that signed comparisons do.
template <int kCells>
struct CellsTraits {
  typedef int32_t Type __attribute__((vector_size(4 * kCells)));
};
template <int kCells>
using CellsOf = typename CellsTraits<kCells>::Type;

template <class Cells>
Cells load(const uint32_t* from) {
  Cells cells;
  std::memcpy(&cells, from, sizeof cells);
  return cells;
}
template <class Cells>
void store(uint32_t* to, Cells cells) {
  std::memcpy(to, &cells, sizeof cells);
}
template <class Cells>
bool any(Cells mask) {
  if constexpr (sizeof mask == 4) {
    return mask[0] != 0;
  } else {
    uint64_t parts[sizeof mask / 8], sum = 0;
    std::memcpy(parts, &mask, sizeof mask);
    for (const uint64_t part : parts) sum |= part;
    return sum != 0;
  }
}

}  // namespace

void Lds::start(size_t bytes) {
  const size_t cells = (bytes + 3) / 4 + 8;
  if (cells > write_.size()) {
    data_.resize(cells * 4);
    for (auto* state : {&write_, &read_, &write_at_, &read_at_}) state->resize(cells);
  }
  bytes_ = bytes;
  std::fill(data_.begin(), data_.begin() + long(cells * 4), kPoison);
  for (auto* state : {&write_, &read_, &write_at_, &read_at_})
    std::fill(state->begin(), state->begin() + long(cells), 0u);
  barrier();
}

void Lds::barrier() {
  if (++epoch_ < kInFlight - 1) return;
  std::fill(read_.begin(), read_.end(), 0u);
  for (uint32_t& write : write_)
    if (epoch_of(write) != kInFlight) write = 0;
  epoch_ = 1;
}

template <int kCells>
uint64_t Lds::read_lanes_of(const uint32_t* addresses, uint64_t lanes, uint32_t wave, uint32_t at) {
  using Cells = CellsOf<kCells>;
  const int32_t now = int32_t(epoch_ << 8), mine = int32_t(stamp(wave)), own = mine & 0xf0;
  const Cells reader = Cells{} + int32_t(at);
  uint64_t suspects = 0;
  for (uint64_t left = lanes; left; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const uint32_t cell = addresses[lane] / 4;
    const auto write = load<Cells>(&write_[cell]), old = load<Cells>(&read_[cell]);
    const Cells race = (write >= now) & (((write & 0xf0) != own) | (write >= kCopying));
    const Cells unwritten = (load<Cells>(&write_at_[cell]) & 15) != 15;
    const Cells others = (old >= now) & ((old & int32_t(0xf0 | kSeveral)) != own);
    store(&read_[cell], mine | (others & int32_t(kSeveral)));
    store(&read_at_[cell], reader);
    suspects |= uint64_t(any(race | unwritten)) << lane;
  }
  return suspects;
}

Lds::Verdict Lds::read_cells(uint32_t cell, uint32_t cells, uint32_t wave, uint32_t at) {
  const Verdict v = race_of_read(cell, cells, wave, 15);
  read_again(4 * cell, 4 * cells, wave, at);
  if (v.fault != Verdict::Fault::none) return v;
  for (uint32_t i = cell; i < cell + cells; ++i)
    if (written(i) != 15) return {Verdict::Fault::unwritten, 0, 0};
  return {};
}

Lds::Verdict Lds::race_of_read(uint32_t cell, uint32_t cells, uint32_t wave, uint32_t mask) const {
  for (uint32_t i = cell; i < cell + cells; ++i) {
    const uint32_t write = write_[i];
    if (epoch_of(write) == kInFlight) return {Verdict::Fault::in_flight, wave_of(write), writer(i)};
    if (epoch_of(write) >= epoch_ && wave_of(write) != wave && (write & mask))
      return {Verdict::Fault::race, wave_of(write), writer(i)};
  }
  return {};
}

Lds::Verdict Lds::race_of_write(uint32_t cell, uint32_t cells, uint32_t wave, uint32_t mask) const {
  if (Verdict v = race_of_read(cell, cells, wave, mask); v.fault != Verdict::Fault::none) return v;
  return race_with_readers(4 * cell, 4 * cells, wave);
}

Lds::Verdict Lds::race_with_readers(uint32_t address, uint32_t bytes, uint32_t wave) const {
  for (uint32_t i = address / 4; i < (address + bytes + 3) / 4; ++i) {
    const uint32_t read = read_[i];
    if (epoch_of(read) >= epoch_ && (wave_of(read) != wave || (read & kSeveral)))
      return {Verdict::Fault::race, wave_of(read), read_at_[i]};
  }
  return {};
}

Lds::Verdict Lds::write_cells(uint32_t cell, uint32_t cells, uint32_t wave, uint32_t at,
                              uint32_t epoch) {
  const Verdict v = race_of_write(cell, cells, wave, 15);
  for (uint32_t i = cell; i < cell + cells; ++i) {
    write_[i] = epoch << 8 | wave << 4 | 15;
    write_at_[i] = at << 4 | 15;
  }
  return v;
}

template <int kCells>
bool Lds::write_lanes_of(const uint32_t* addresses, uint64_t lanes, uint32_t wave, uint32_t at,
                         uint32_t epoch) {
  using Cells = CellsOf<kCells>;
  const int32_t now = int32_t(epoch_ << 8), own = int32_t(wave << 4);
  Cells races{};
  for (uint64_t left = lanes; left; left &= left - 1) {
    const uint32_t cell = addresses[std::countr_zero(left)] / 4;
    const auto write = load<Cells>(&write_[cell]), read = load<Cells>(&read_[cell]);
    races |= (write >= now) & (((write & 0xf0) != own) | (write >= kCopying));
    races |= (read >= now) & ((read & int32_t(0xf0 | kSeveral)) != own);
  }
  if (any(races)) return false;
  const Cells mark = Cells{} + int32_t(epoch << 8 | wave << 4 | 15);
  const Cells writer = Cells{} + int32_t(at << 4 | 15);
  for (uint64_t left = lanes; left; left &= left - 1) {
    const uint32_t cell = addresses[std::countr_zero(left)] / 4;
    store(&write_[cell], mark);
    store(&write_at_[cell], writer);
  }
  return true;
}

bool Lds::write_lanes_any(const uint32_t* addresses, uint64_t lanes, uint32_t bytes, uint32_t wave,
                          uint32_t at, uint32_t epoch) {
  if (bytes == 16) return write_lanes_of<4>(addresses, lanes, wave, at, epoch);
  if (bytes == 8) return write_lanes_of<2>(addresses, lanes, wave, at, epoch);
  if (bytes == 4) return write_lanes_of<1>(addresses, lanes, wave, at, epoch);
  return false;
}

Lds::Verdict Lds::read(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at) {
  const uint32_t cell = address / 4;
  if (address % 4 == 0 && bytes >= 4) return read_cells(cell, bytes / 4, wave, at);
  const uint32_t mask = byte_mask(address, bytes);
  const Verdict v = race_of_read(cell, 1, wave, mask);
  read_again(address, bytes, wave, at);
  if (v.fault != Verdict::Fault::none) return v;
  if ((written(cell) & mask) != mask) return {Verdict::Fault::unwritten, 0, 0};
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
  if (address % 4 == 0 && bytes >= 4) return write_cells(cell, bytes / 4, wave, at, epoch);
  const uint32_t mask = byte_mask(address, bytes);
  const Verdict v = race_of_write(cell, 1, wave, mask);
  const uint32_t same = epoch_of(write_[cell]) == epoch ? write_[cell] & 15 : 0;
  write_[cell] = epoch << 8 | wave << 4 | same | mask;
  write_at_[cell] = at << 4 | written(cell) | mask;
  return v;
}

Lds::Verdict Lds::write(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at) {
  return write_any(address, bytes, wave, at, epoch_);
}

Lds::Verdict Lds::begin_copy(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at) {
  return write_any(address, bytes, wave, at, kInFlight);
}

template <int kCells>
void Lds::write_lanes_again(const uint32_t* addresses, uint64_t lanes, uint32_t wave, uint32_t at) {
  using Cells = CellsOf<kCells>;
  const Cells mark = Cells{} + int32_t(stamp(wave) | 15);
  for (uint64_t left = lanes; left; left &= left - 1) {
    const uint32_t cell = addresses[std::countr_zero(left)] / 4;
    store(&write_[cell], mark);
    store(&write_at_[cell], (load<Cells>(&write_at_[cell]) & 15) | int32_t(at << 4));
  }
}

void Lds::end_copy(const uint32_t* addresses, uint64_t lanes, uint32_t bytes, uint32_t wave,
                   uint32_t at) {
  if (bytes == 16) return write_lanes_again<4>(addresses, lanes, wave, at);
  if (bytes == 4) return write_lanes_again<1>(addresses, lanes, wave, at);
  for (uint64_t left = lanes; left; left &= left - 1)
    write_again(addresses[std::countr_zero(left)], bytes, wave, at);
}

void Lds::read_again(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at) {
  for (uint32_t i = address / 4; i < (address + bytes + 3) / 4; ++i) {
    const uint32_t old = read_[i];
    const bool others = epoch_of(old) == epoch_ && (wave_of(old) != wave || (old & kSeveral));
    read_[i] = stamp(wave) | (others ? kSeveral : 0);
    read_at_[i] = at;
  }
}

void Lds::write_again(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at) {
  for (uint32_t i = address / 4; i < (address + bytes + 3) / 4; ++i) {
    write_[i] = stamp(wave) | byte_mask(address, bytes);
    write_at_[i] = at << 4 | written(i);
  }
}

}  // namespace hk::emulator
