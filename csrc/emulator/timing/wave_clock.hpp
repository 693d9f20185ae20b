// The timing of one wave: its position in its trace, and what it waits for.
#pragma once

#include <array>
#include <limits>
#include <vector>

#include "machine/trace.hpp"
#include "timing/operation.hpp"
#include "timing/stall.hpp"

namespace hk::emulator::timing {

inline constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

// Instructions outstanding in one counter, by the clock at which they are done.
class Outstanding {
 public:
  void add(uint64_t done, bool in_order);
  // First clock at which at most `left` instructions are outstanding.
  uint64_t at_most(int left) const;
  void drop_done(uint64_t now);

 private:
  std::vector<uint64_t> done_;  // ascending
  uint64_t newest_ = 0;         // latest clock of those that return in order
};

struct WaveClock {
  const WaveTrace* steps = nullptr;
  size_t next = 0;
  uint32_t group = 0, index = 0, simd = 0;
  int priority = 0;
  uint64_t age = 0;
  uint64_t wake = 0;          // clock before which the wave cannot issue
  uint64_t seen = 0;          // clock up to which its time is accounted for
  Stall why = Stall::itself;  // reason of its wait since then
  Unit last = Unit::none;     // unit of its last instruction, which issued at `issued`
  uint64_t issued = 0;
  // Scalar registers that vector instructions wrote, the last of them at `scalars_written`.
  uint64_t vector_scalars[2] = {}, scalars_written = 0;
  bool at_barrier = false;
  Outstanding vm, lgkm;

  // Matrix results by register: the clock from which any instruction may read the register, and the
  // first register of the accumulator that wrote it.
  std::array<uint64_t, 512> result{};
  std::array<uint16_t, 512> owner{};
  uint64_t last_result = 0;

  // First clock at which no operand waits for a matrix result.
  uint64_t results_ready(const Operation& o, uint32_t forward) const;
  void note_matrix(const Operation& o, uint64_t ready);
  // First clock at which an instruction may follow those before it, whatever it reads.
  uint64_t follows(const Operation& o, const Parameters& parameters) const;
  void note_issue(const Operation& o, uint64_t now);
};

}  // namespace hk::emulator::timing
