#include "machine/hazard_traits.hpp"

#include <string_view>

#include "machine/matrix_shape.hpp"
#include "machine/mnemonic.hpp"

namespace hk::emulator {
namespace {

// Number of passes, of 4 clocks each, of a matrix instruction. They follow LLVM's scheduling model
// for gfx942 and gfx950, and were compared with its s_nop counts after each instruction.
uint8_t passes_of(const Instruction& in, const MatrixShape& s) {
  const std::string_view name = in.opcode->mnemonic;
  const unsigned multiply_adds = s.m * s.n * s.k * s.blocks;
  if (has(name, "f64")) return s.m == 4 ? 4 : 8;
  if (name.ends_with("x1_2b_f32") || name.ends_with("_f32")) return uint8_t(multiply_adds / 128);
  if (has(name, "f8f6f4")) {
    const bool fp8 = in.cbsz < 2 || in.blgp < 2;  // 0 and 1 are FP8, the others FP6 and FP4
    return uint8_t((s.m == 16 ? 4 : 8) * (fp8 ? 2 : 1));
  }
  if (s.blocks > 1) return uint8_t(s.m == 4 ? 2 : s.m == 16 ? 8 : 16);
  if (has(name, "xf32")) return uint8_t(s.m == 16 ? 4 : 8);
  if (s.m == 32 && s.k == 4) return 16;
  return uint8_t(s.m == 16 ? 4 : 8);
}

}  // namespace

HazardTraits hazard_traits(const Instruction& in, Action action, const MemoryTraits& memory) {
  const std::string_view name = in.opcode->mnemonic;
  HazardTraits h;
  const Class cls = in.opcode->cls;
  h.matrix = cls == Class::matrix;
  h.valu = cls == Class::valu || cls == Class::transcendental;
  h.transcendental = cls == Class::transcendental;
  h.dot = name.starts_with("v_dot");
  h.dpp = in.dpp;
  h.partial = h.valu && ((in.sdwa && in.dst_sel != 6) || (in.op_sel & 8) != 0);
  h.lane_access =
      name == "v_readlane_b32" || name == "v_readfirstlane_b32" || name == "v_writelane_b32";
  h.permlane_swap = name.starts_with("v_permlane");
  h.div_fmas = name.starts_with("v_div_fmas");
  h.vector_memory = action == Action::vector_memory;
  h.lds = action == Action::lds;
  h.reads_m0_late =
      cls == Class::lds_copy || name.starts_with("s_sendmsg") || name.starts_with("s_movrel");
  h.long_store = h.vector_memory && memory.access == Access::store && memory.bytes > 8 &&
                 (memory.space != Space::buffer || in.soffset.kind != Kind::sgpr);
  if (name == "s_nop") h.wait_states = uint8_t((in.simm & 15) + 1);
  if (name.starts_with("s_setreg")) h.set_register = int16_t(in.simm & 63);
  if (name.starts_with("s_getreg")) h.get_register = int16_t(in.simm & 63);
  if (h.matrix) {
    h.f64 = has(name, "f64");
    h.xdl = !h.f64 && !(name.ends_with("_f32"));
    h.passes = passes_of(in, matrix_shape(name));
  }
  return h;
}

}  // namespace hk::emulator
