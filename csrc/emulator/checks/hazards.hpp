// Wait states that software has to insert on gfx942 and gfx950.
//
// Sources: CDNA3 and CDNA4 ISA guides, "Manually Inserted Wait States (NOPs)" and "Dependency
// Resolution: Required Independent Instructions"; LLVM's GCNHazardRecognizer. A test compares these
// wait states with LLVM's s_nop counts for gfx942 and gfx950. Every instruction is one wait state,
// s_nop n is n + 1.
//
// The hardware waits by itself for these, which are not reported:
//   - vector registers from one vector instruction to the next, to memory and LDS instructions,
//     except as below; scalar registers, VCC, EXEC and M0 from scalar to any instruction, except M0
//     to copies to LDS and messages; what vector instructions write to SGPRs, VCC and EXEC, if a
//     scalar instruction or scalar load reads it; EXEC by a compare, for plain vector instructions
//   - a matrix result as the accumulator of the next matrix instruction, register for register
//     (but for 2-pass and 4x4 FP64 ones), and one that a matrix instruction overwrites
//   - a transcendental or dot-product result for its own kind
// Software must insert wait states for these:
//   - a matrix result read or written over by vector, memory and LDS instructions, read as A or B,
//     or as part of another accumulator; an accumulator written over while it is still read
//   - EXEC or an operand by a vector instruction before a matrix instruction
//   - results of transcendental, dot-product and part-of-a-register instructions for other kinds
//   - what a vector instruction wrote, read by DPP, v_permlane*_swap, v_readlane, v_readfirstlane;
//     EXEC by a compare before those, v_writelane and vector memory instructions
//   - SGPRs and VCC by a vector instruction: as operands of vector and vector memory instructions,
//     as a lane number, by v_div_fmas
//   - the data of stores of more than 8 bytes, if it is then overwritten
//   - hardware registers that are set and then read
#pragma once

#include "checks/findings.hpp"
#include "machine/wave_state.hpp"

namespace hk::emulator {

// Reports wait states that are missing before an instruction that is about to be issued.
void check_hazards(WaveState& wave, const Prepared& p, uint32_t index, Arch arch,
                   Findings& findings);
// Records that an instruction has been issued.
void note_issue(WaveState& wave, const Prepared& p);

}  // namespace hk::emulator
