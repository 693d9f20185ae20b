// Decodes machine words of gfx942 and gfx950 to Instruction, without LLVM. These are LLVM's GFX9
// encodings with the CDNA3 and CDNA4 opcodes ("Microcode Formats" in the CDNA ISA guides).
//
// Layout of operands, in addition to instruction.hpp:
//   sources   explicit ones in the order that the assembler prints them, then implied ones:
//             - an accumulator that the encoding ties to the destination (v_fmac, v_dot2c, s_addk)
//               is a source of its own, a copy of dst[0], always the last one;
//             - carry and selector masks (v_addc_co_u32, v_cndmask_b32) are sources even where the
//               encoding implies VCC: SGPR 106, 2 dwords.
//             - v_swap_b32, v_permlane*_swap: dst[0], dst[1] and src[0], src[1] are vdst, vsrc.
//   masks     of 64 lanes are SGPR operands of 2 dwords. With a result (v_add_co_u32, v_div_scale):
//             dst[0] the result, dst[1] the mask. A compare: dst[0] is the mask; v_cmpx also
//             writes EXEC (Opcode::writes).
//   constants `value`: f16, bf16 in the low 16 bits; 32-bit integers zero-extended above bit 31;
//             64-bit integer operands sign-extended (literals of b64, u64 zero-extended); f64 the
//             64 bits. Packed 16-bit operands: see constant_value() in inline_constants.cpp.
//             v_fmamk, v_fmaak and s_setreg_imm32 have their literal in src[] like any source.
//   DPP, SDWA dst[0] keeps its old bits in lanes or bytes that are not written; not a source.
//   SMEM      src[0] the base (2 SGPRs; 4 for s_buffer_load), soffset the SGPR offset if any.
//   DS        src[0] the address unless the opcode has none (ds_append), then the data.
//             `bytes`: of one access (ds_read2_b32: 4).
//   MUBUF     src[0] the VGPR address (Kind::none without offen and idxen; both: 2 dwords, index
//             first), src[1] the data of stores and atomics. With lds: no dst.
//   FLAT      src[0] the VGPR address (2 dwords; 1 with saddr or scratch; Kind::none: off), src[1]
//             the data, resource the saddr (Kind::none: off).
//             Atomics return into dst[0] if glc (sc0), else num_dst is 0.
//   branches  simm in dwords from the next instruction, as encoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "isa/instruction.hpp"

namespace hk::emulator {

// Decodes the instruction at words[0]. An unknown one has the mnemonic "unknown" (is_unknown) and 4
// bytes. Code also has padding and tables, so only reaching such an instruction is an error.
Instruction decode(std::span<const uint32_t> words, Arch arch, uint64_t pc);
bool is_unknown(const Instruction& instruction);

struct DecodedText {
  std::vector<Instruction> instructions;
  std::vector<int32_t> index_of_pc;  // [byte / 4]; -1 inside an instruction
};
DecodedText decode_text(std::span<const std::byte> text, Arch arch);

}  // namespace hk::emulator
