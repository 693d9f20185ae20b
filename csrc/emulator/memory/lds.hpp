// LDS of one workgroup, with the waves that read and wrote it.
//
// Accesses of two waves to the same bytes, of which one writes, need a barrier between them. Time
// is counted in barriers (epochs). An access belongs to the epoch in which it is issued and, while
// it is in flight, also to every later one. A copy from global memory may land at any moment until
// its wave has waited for it. Until then nobody, not even the wave itself, may touch its bytes.
// Cells are dwords with a mask of bytes. Two waves may write different bytes of one dword, but the
// last one then counts as the writer of all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hk::emulator {

class Lds {
 public:
  static constexpr uint32_t kWaves = 16;

  void start(size_t bytes);  // start of a workgroup: all bytes are unwritten and poisoned
  size_t size() const { return bytes_; }
  std::byte* at(uint32_t address) { return data_.data() + address; }
  void barrier();  // begins a new epoch

  // The fault of an access, if any: a conflict with another instruction, or bytes never written.
  struct Verdict {
    enum class Fault : uint8_t { none, unwritten, race, in_flight } fault = Fault::none;
    uint32_t wave = 0, instruction = 0;  // those of the conflicting access
  };
  // Checks and records an access of `wave` by instruction `at`; address + bytes <= size().
  Verdict read(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at);
  Verdict write(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at);
  // Records reads by all lanes. Returns lanes that may be at fault, for which read() finds the
  // fault.
  uint64_t read_lanes(const uint32_t* addresses, uint64_t lanes, uint32_t bytes, uint32_t wave,
                      uint32_t at);
  // Records writes by all lanes. Returns false if one may be at fault; then nothing has been
  // recorded, and write() finds the fault.
  bool write_lanes(const uint32_t* addresses, uint64_t lanes, uint32_t bytes, uint32_t wave,
                   uint32_t at) {
    return write_lanes_any(addresses, lanes, bytes, wave, at, epoch_);
  }
  // The race of a write with reads alone.
  Verdict race_with_readers(uint32_t address, uint32_t bytes, uint32_t wave) const;
  // Check and record a copy when it is issued, and when it lands.
  Verdict begin_copy(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at);
  bool begin_copy_lanes(const uint32_t* addresses, uint64_t lanes, uint32_t bytes, uint32_t wave,
                        uint32_t at) {
    return write_lanes_any(addresses, lanes, bytes, wave, at, kInFlight);
  }
  void end_copy(const uint32_t* addresses, uint64_t lanes, uint32_t bytes, uint32_t wave,
                uint32_t at);
  // Record an access that is still in flight after a barrier in the new epoch, too.
  void read_again(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at);
  void write_again(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at);

 private:
  // Encoding of a write: epoch << 8 | wave << 4 | bytes written. A copy in flight has the largest
  // epoch. Encoding of a read: epoch << 8 | wave << 4 | 8 if other waves read in that epoch, too.
  static constexpr uint32_t kInFlight = 0x7fffff, kSeveral = 8;
  static constexpr int32_t kCopying = kInFlight << 8;  // least word of a copy in flight
  static uint32_t epoch_of(uint32_t word) { return word >> 8; }
  static uint32_t wave_of(uint32_t word) { return word >> 4 & 15; }
  uint32_t stamp(uint32_t wave) const { return epoch_ << 8 | wave << 4; }

  Verdict read_cells(uint32_t cell, uint32_t cells, uint32_t wave, uint32_t at);
  template <int kCells>
  uint64_t read_lanes_of(const uint32_t* addresses, uint64_t lanes, uint32_t wave, uint32_t at);
  template <int kCells>
  bool write_lanes_of(const uint32_t* addresses, uint64_t lanes, uint32_t wave, uint32_t at,
                      uint32_t epoch);
  bool write_lanes_any(const uint32_t* addresses, uint64_t lanes, uint32_t bytes, uint32_t wave,
                       uint32_t at, uint32_t epoch);
  template <int kCells>
  void write_lanes_again(const uint32_t* addresses, uint64_t lanes, uint32_t wave, uint32_t at);
  Verdict write_cells(uint32_t cell, uint32_t cells, uint32_t wave, uint32_t at, uint32_t epoch);
  Verdict write_any(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at, uint32_t epoch);
  Verdict race_of_read(uint32_t cell, uint32_t cells, uint32_t wave, uint32_t mask) const;
  Verdict race_of_write(uint32_t cell, uint32_t cells, uint32_t wave, uint32_t mask) const;

  uint32_t writer(uint32_t cell) const { return write_at_[cell] >> 4; }
  uint32_t written(uint32_t cell) const { return write_at_[cell] & 15; }

  size_t bytes_ = 0;
  uint32_t epoch_ = 1;
  std::vector<std::byte> data_;
  // State of each dword: its last write and read, and their instructions. In write_at_ the low 4
  // bits are the bytes ever written.
  std::vector<uint32_t> write_, read_, write_at_, read_at_;
};

}  // namespace hk::emulator
