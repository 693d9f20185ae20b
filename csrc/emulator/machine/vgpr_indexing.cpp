#include "machine/vgpr_indexing.hpp"

#include "isa/opcodes.hpp"
#include "machine/workgroup.hpp"

namespace hk::emulator {
namespace {

enum Role : uint32_t { kSrc0 = 1, kSrc1 = 2, kSrc2 = 4, kDst = 8 };

// Hardware operand that a source is; the literal of v_fmamk stands between its sources.
uint32_t role_of_source(const Instruction& in, int source) {
  const bool literal_between = in.src[1].kind == Kind::constant && in.src[1].index == 255;
  return source == 0 ? kSrc0 : source == 1 || literal_between ? kSrc1 : kSrc2;
}

// Adds `offset` to the VGPRs of the roles in `chosen`; returns whether there are any.
bool shift(Instruction& in, uint32_t chosen, uint32_t offset) {
  bool any = false;
  const auto move = [&](Operand& o, uint32_t role) {
    if (o.kind != Kind::vgpr || !(chosen & role)) return;
    o.index = uint16_t(o.index + offset);
    any = true;
  };
  for (int i = 0; i < in.num_src; ++i) move(in.src[i], role_of_source(in, i));
  for (int i = 0; i < in.num_dst; ++i) move(in.dst[i], kDst);
  return any;
}

// Names a form for which the guides do not define indexing; null: it is defined. `tied`: the
// accumulator of v_fmac is both a source and the destination.
const char* undocumented(const Instruction& in, const Prepared& p, uint32_t chosen) {
  if (in.dpp || in.sdwa) return "DPP or SDWA";
  if (p.hazard.matrix) return "a matrix instruction";
  if (p.hazard.lane_access || p.hazard.permlane_swap || in.num_dst == 2)
    return "a lane access or swap";
  const Operand& last = in.src[in.num_src ? in.num_src - 1 : 0];
  const bool tied = in.num_src > 1 && in.num_dst && last.kind == Kind::vgpr &&
                    entry_of(in).src[in.num_src - 1].role == OperandType::Role::tied;
  return tied && (chosen & (kSrc2 | kDst)) ? "an accumulator" : nullptr;
}

bool fits(const Instruction& in, uint32_t vgprs) {
  const auto inside = [&](const Operand& o) {
    return o.kind != Kind::vgpr || uint32_t(o.index) + o.dwords <= vgprs;
  };
  bool all = true;
  for (int i = 0; i < in.num_src; ++i) all &= inside(in.src[i]);
  for (int i = 0; i < in.num_dst; ++i) all &= inside(in.dst[i]);
  return all;
}

}  // namespace

const Prepared& VgprIndexing::apply(Workgroup& g, const WaveState& w, const Prepared& p) {
  const uint32_t m0 = w.wave.sgpr[kSgprM0] & 0xf0ff, chosen = m0 >> 12, offset = m0 & 0xff;
  if (!p.hazard.valu && !p.hazard.matrix) return p;
  auto& made = made_[{p.index, m0}];
  if (!made) {
    made = std::make_unique<Indexed>(Indexed{*p.instruction, {}});
    if (!shift(made->instruction, chosen, offset)) {
      made->prepared = p;  // but reads M0
    } else {
      const Place place{p.index, -1, w.index, -1, 0};
      if (const char* what = undocumented(*p.instruction, p, chosen))
        g.stop("unsupported-instruction", std::string("VGPR indexing of ") + what, place);
      if (!fits(made->instruction, g.launch.limits.vgprs))
        g.stop("register-bounds",
               "VGPR indexing by " + std::to_string(offset) + ": the kernel has " +
                   std::to_string(g.launch.limits.vgprs) + " VGPRs",
               place);
      made->prepared = prepare_one(made->instruction, p.index, *g.launch.kernel);
    }
    made->prepared.scalar_reads[kSgprM0 / 64] |= 1ull << kSgprM0 % 64;
  }
  return made->prepared;
}

}  // namespace hk::emulator
