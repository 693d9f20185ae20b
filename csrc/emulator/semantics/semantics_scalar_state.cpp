// SALU: instructions that change a wave's state: EXEC, MODE, and M0 for VGPR indexing.
#include "semantics/scalar.hpp"

namespace hk::emulator::scalar {
namespace {

// Handler of EXEC = F(S, EXEC), SCC = EXEC != 0; D = EXEC before (saveexec) or after (wrexec).
template <bool kSave, class F>
Execute mask_exec(F) {
  return [](Wave& w, const Instruction& in) {
    const uint64_t source = read<uint64_t>(w, in.src[0]), before = w.exec();
    const uint64_t after = F{}(source, before);
    w.set_pair(in.dst[0].index, kSave ? before : after);
    w.set_pair(kSgprExec, after);
    w.scc = after != 0;
  };
}

void add_exec(Semantics& all) {
  all["s_and_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return s & exec; });
  all["s_or_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return s | exec; });
  all["s_xor_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return s ^ exec; });
  all["s_andn2_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return s & ~exec; });
  all["s_orn2_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return s | ~exec; });
  all["s_nand_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return ~(s & exec); });
  all["s_nor_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return ~(s | exec); });
  all["s_xnor_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return ~(s ^ exec); });
  all["s_andn1_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return ~s & exec; });
  all["s_orn1_saveexec_b64"] = mask_exec<true>([](u64 s, u64 exec) { return ~s | exec; });
  all["s_andn1_wrexec_b64"] = mask_exec<false>([](u64 s, u64 exec) { return ~s & exec; });
  all["s_andn2_wrexec_b64"] = mask_exec<false>([](u64 s, u64 exec) { return s & ~exec; });
}

// The register of s_getreg_b32 or s_setreg_*; a wave has only MODE.
struct HardwareRegister {
  int id, offset, size;
  explicit HardwareRegister(const Instruction& in)
      : id(in.simm & 63), offset(in.simm >> 6 & 31), size((in.simm >> 11 & 31) + 1) {
    if (id != 1)
      throw Unsupported("hardware register " + std::to_string(id) + ": only MODE (1) is emulated");
  }
  uint32_t mask() const { return (size == 32 ? ~0u : (1u << size) - 1) << offset; }
};

void get_register(Wave& w, const Instruction& in) {
  const HardwareRegister field(in);
  write(w, in.dst[0], (w.mode & field.mask()) >> field.offset);
}
void set_register(Wave& w, const Instruction& in) {
  const HardwareRegister field(in);
  const uint32_t value = read<uint32_t>(w, in.src[0]) << field.offset;
  w.mode = (w.mode & ~field.mask()) | (value & field.mask());
}

// Sets bits of M0: VGPR indexing's offset [7:0], and the operands that it moves [15:12].
void set_m0(Wave& w, uint32_t mask, uint32_t value) {
  w.sgpr[kSgprM0] = (w.sgpr[kSgprM0] & ~mask) | (value & mask);
}

void add_vgpr_indexing(Semantics& all) {
  constexpr uint32_t kEnable = 1u << 27;  // MODE's GPR_IDX_EN
  all["s_set_gpr_idx_on"] = [](Wave& w, const Instruction& in) {
    w.mode |= kEnable;
    set_m0(w, 0xf0ff, (read<u32>(w, in.src[0]) & 0xff) | uint32_t(in.simm) << 12);
  };
  all["s_set_gpr_idx_off"] = [](Wave& w, const Instruction&) { w.mode &= ~kEnable; };
  all["s_set_gpr_idx_mode"] = [](Wave& w, const Instruction& in) {
    set_m0(w, 0xf000, uint32_t(in.simm) << 12);
  };
  all["s_set_gpr_idx_idx"] = [](Wave& w, const Instruction& in) {
    set_m0(w, 0xff, read<u32>(w, in.src[0]));
  };
}

}  // namespace

void add_state(Semantics& all) {
  add_exec(all);
  add_vgpr_indexing(all);
  all["s_getreg_b32"] = get_register;
  all["s_setreg_b32"] = set_register;
  all["s_setreg_imm32_b32"] = set_register;
}

}  // namespace hk::emulator::scalar
