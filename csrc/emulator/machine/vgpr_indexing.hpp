// VGPR indexing (CDNA ISA guides, S_SET_GPR_IDX_ON): while MODE's GPR_IDX_EN is set, the VGPRs that
// vector ALU instructions name are those M0[7:0] further on, for the operands that M0[15:12] chooses
// (from the low bit: src0, src1, src2, the destination).
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "machine/prepared.hpp"
#include "machine/wave_state.hpp"

namespace hk::emulator {

class Workgroup;

inline constexpr uint32_t kGprIndexEnable = 1u << 27;  // of MODE

class VgprIndexing {
 public:
  // The instruction as it is to be executed: `p` itself if indexing does not change it. Ends the
  // workgroup at what is not allocated, and where the guides do not say what indexing does.
  const Prepared& apply(Workgroup& group, const WaveState& wave, const Prepared& p);

 private:
  struct Indexed {
    Instruction instruction;
    Prepared prepared;
  };
  // By index and M0's fields; kept, since hazards refer to recent instructions.
  std::map<std::pair<uint32_t, uint32_t>, std::unique_ptr<Indexed>> made_;
};

}  // namespace hk::emulator
