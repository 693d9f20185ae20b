// Workgroups that read and wrote the bytes of a region in this launch.
//
// There is one cell per dword for as long as all accesses to it are of whole dwords. The first one
// that is not splits the cell into one per byte, so that two workgroups may write neighbouring
// bytes. Cells hold numbers of workgroups that count over all launches, so that nothing needs to be
// cleared between launches.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hk::emulator {

class RaceShadow {
 public:
  enum class Use : uint8_t { read, write, atomic };
  // An access of workgroup `self`; `first`: the number of this launch's workgroup 0.
  struct Access {
    Use use;
    uint32_t self, first;
  };

  RaceShadow() = default;
  ~RaceShadow();
  RaceShadow(const RaceShadow&) = delete;
  // Pages take memory only when they are touched. `address`: that of the first byte.
  void reserve(uint64_t address, size_t bytes);

  // The two steps of a check, with a fence between them: of two workgroups on two threads at least
  // one sees the other. Both return a conflicting workgroup's number, or 0. An access to parts of
  // dwords must have split them.
  uint32_t note(Access access, size_t offset, size_t bytes);
  uint32_t look(Access access, size_t offset, size_t bytes) const;
  // The same for many bytes at once. They return false if there may be a conflict; then nothing has
  // been noted, and the steps above find it.
  bool note_all(Access access, size_t offset, size_t bytes);
  bool look_at_all(Access access, size_t offset, size_t bytes) const;

  bool has_whole_dwords(size_t offset, size_t bytes) const {
    return ((offset + skew_) | bytes) % 4 == 0;
  }
  bool is_split(size_t offset, size_t bytes) const;
  // No other thread may use the shadow meanwhile.
  void split(size_t offset, size_t bytes);

 private:
  // kAtomic: the last write was atomic. kSeveral: several workgroups read.
  static constexpr uint32_t kAtomic = 1, kSeveral = 1;  // lowest bit of a cell
  static constexpr uint32_t kSplit = ~0u;               // in `written`: the bytes have the cells

  struct Cells {
    uint32_t *written = nullptr, *read = nullptr;
  };
  static Cells reserve_cells(size_t count);
  template <class Body>
  uint32_t each(size_t offset, size_t bytes, Body&& body) const;
  Cells cells_of(size_t offset, size_t bytes, size_t& count) const;

  Cells dwords_, bytes_;
  size_t count_ = 0;   // number of dwords
  uint32_t skew_ = 0;  // place of the first byte in its dword
};

}  // namespace hk::emulator
