// VGPR indexing (CDNA ISA guides, S_SET_GPR_IDX_ON). While MODE's GPR_IDX_EN is set, vector ALU
// instructions add M0[7:0] to the numbers of their VGPRs. M0[15:12] chooses the operands: from the
// low bit on src0, src1, src2, the destination.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "machine/prepared.hpp"
#include "machine/wave_state.hpp"

namespace hk::emulator {

class Workgroup;

inline constexpr uint32_t kGprIndexEnable = 1u << 27;  // bit of MODE

class VgprIndexing {
 public:
  // Returns the instruction to execute, which is `p` itself if indexing does not change it. Ends
  // the workgroup at registers that are not allocated, and at forms that the guides do not define.
  const Prepared& apply(Workgroup& group, const WaveState& wave, const Prepared& p);

 private:
  struct Indexed {
    Instruction instruction;
    Prepared prepared;
  };
  // Indexed instructions, by index and M0's fields. They are kept, since hazards refer to recent
  // instructions.
  std::map<std::pair<uint32_t, uint32_t>, std::unique_ptr<Indexed>> made_;
};

}  // namespace hk::emulator
