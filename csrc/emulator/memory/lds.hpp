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
  // Check and record a copy when it is issued, and when it lands.
  Verdict begin_copy(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at);
  void end_copy(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at);
  // Record an access that is still in flight after a barrier in the new epoch, too.
  void read_again(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at);
  void write_again(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at);

 private:
  // Encoding of a write: epoch << 8 | wave << 4 | bytes written. A copy in flight has the largest
  // epoch. Encoding of a read: epoch << 8 | wave << 4 | 8 if other waves read in that epoch, too.
  static constexpr uint32_t kInFlight = 0xffffff, kSeveral = 8;
  static uint32_t epoch_of(uint32_t word) { return word >> 8; }
  static uint32_t wave_of(uint32_t word) { return word >> 4 & 15; }
  uint32_t stamp(uint32_t wave) const { return epoch_ << 8 | wave << 4; }

  template <int kCells>
  Verdict read_cells(uint32_t cell, uint32_t wave, uint32_t at);
  template <int kCells>
  uint64_t read_lanes_of(const uint32_t* addresses, uint64_t lanes, uint32_t wave, uint32_t at);
  template <int kCells>
  Verdict write_cells(uint32_t cell, uint32_t wave, uint32_t at, uint32_t epoch);
  Verdict write_any(uint32_t address, uint32_t bytes, uint32_t wave, uint32_t at, uint32_t epoch);
  Verdict race_of_read(uint32_t cell, uint32_t cells, uint32_t wave, uint32_t mask) const;
  Verdict race_of_write(uint32_t cell, uint32_t cells, uint32_t wave, uint32_t mask) const;

  // State of a dword, stored together since one access touches all of it.
  struct Cell {
    uint32_t write = 0, read = 0;
    // Instructions; in write_at the low 4 bits are the bytes ever written.
    uint32_t write_at = 0, read_at = 0;
    uint32_t writer() const { return write_at >> 4; }
    uint32_t written() const { return write_at & 15; }
  };

  size_t bytes_ = 0;
  uint32_t epoch_ = 1;
  std::vector<std::byte> data_;
  std::vector<Cell> cells_;
};

// Counts the LDS phases that an access takes, and the fewest that its width needs. Returns false if
// the width is not modelled. Phases are published only for some widths of gfx950: ds_read_b128 and
// ds_read_b64 with 64 banks, ds_write_b64 with 32.
struct LdsPhases {
  uint32_t taken = 0, needed = 0;
};
bool count_phases(bool write, unsigned bytes, const uint32_t* addresses, uint64_t lanes,
                  LdsPhases& phases);

}  // namespace hk::emulator
