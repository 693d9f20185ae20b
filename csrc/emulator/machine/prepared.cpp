#include "machine/prepared.hpp"

#include <algorithm>
#include <string_view>

#include "machine/matrix_shape.hpp"
#include "machine/wave.hpp"

namespace hk::emulator {
namespace {

void add_scalar(uint64_t (&mask)[2], unsigned index, unsigned dwords) {
  for (unsigned i = index; i < index + dwords && i < 128; ++i) mask[i / 64] |= 1ull << i % 64;
}

void add_operand(Prepared& p, const Operand& o, bool write) {
  auto& scalars = write ? p.scalar_writes : p.scalar_reads;
  switch (o.kind) {
    case Kind::vgpr:
    case Kind::agpr: {
      const Registers r{uint16_t(o.index + (o.kind == Kind::agpr ? 256 : 0)), o.dwords};
      uint16_t& needed = o.kind == Kind::agpr ? p.agprs : p.vgprs;
      needed = std::max(needed, uint16_t(o.index + o.dwords));
      if (write)
        p.writes[p.num_writes++] = r;
      else
        p.reads[p.num_reads++] = r;
      break;
    }
    case Kind::sgpr: add_scalar(scalars, o.index, o.dwords); break;
    case Kind::vccz: add_scalar(scalars, kSgprVcc, 2); break;
    case Kind::execz: add_scalar(scalars, kSgprExec, 2); break;
    case Kind::scc: (write ? p.writes_scc : p.reads_scc) = true; break;
    default: break;
  }
}

void add_implicit(uint8_t bits, uint64_t (&scalars)[2], bool& scc) {
  scc |= (bits & kScc) != 0;
  if (bits & kVcc) add_scalar(scalars, kSgprVcc, 2);
  if (bits & kExec) add_scalar(scalars, kSgprExec, 2);
  if (bits & kM0) add_scalar(scalars, kSgprM0, 1);
}

// The part of a source that v_pk_*_f32 or v_pk_mov_b32 reads. op_sel and op_sel_hi choose a dword
// of each source for each half of the result; a dword that neither chooses is not read.
Operand selected_dwords(const Instruction& in, int source) {
  Operand o = in.src[source];
  // v_pk_mov_b32: the low half from src0, the high from src1
  const bool move = in.opcode->mnemonic == "v_pk_mov_b32";
  const unsigned low = in.op_sel >> source & 1;
  const unsigned high = move ? low : in.op_sel_hi >> source & 1;
  if (o.dwords != 2 || low != high) return o;
  o.dwords = 1;
  o.index = uint16_t(o.index + low);
  return o;
}

bool is_packed_dwords(std::string_view name) {
  return name.starts_with("v_pk_") && (name.ends_with("_f32") || name == "v_pk_mov_b32");
}

// Bits of the Causes that an instruction is, once everything else about it is known.
uint16_t causes_of(const Prepared& p) {
  const HazardTraits& h = p.hazard;
  unsigned causes = 0;
  const auto add = [&](Cause cause, bool is) { causes |= unsigned(is) << int(cause); };
  add(Cause::valu, h.valu);
  add(Cause::exec, h.valu && (p.scalar_writes[1] >> (kSgprExec - 64) & 3));
  add(Cause::scalar, h.valu && (p.scalar_writes[0] | p.scalar_writes[1]));
  add(Cause::transcendental, h.transcendental);
  add(Cause::dot, h.dot);
  add(Cause::partial, h.partial);
  add(Cause::long_store, h.long_store);
  add(Cause::matrix, h.matrix);
  add(Cause::accumulator, h.matrix && h.xdl && p.num_reads >= 3);
  return uint16_t(causes);
}

// Whether a source's second dword reaches only the second dword of the result. Compilers leave it
// undefined if they use only the low dword of the result. (LLVM does 32-bit address arithmetic with
// v_mad_u64_u32 and an undefined high half of the addend.)
bool goes_into_high(std::string_view name, int source) {
  if (name == "v_mad_u64_u32" || name == "v_mad_i64_i32") return source == 2;
  return name == "v_lshl_add_u64" && source != 1;
}

}  // namespace

Prepared prepare_one(const Instruction& in, uint32_t index, const Kernel& kernel) {
  Prepared p;
  p.instruction = &in;
  p.index = index;
  p.execute = in.opcode->execute;
  p.action = action_of(in);
  const std::string_view name = in.opcode->mnemonic;
  for (int i = 0; i < in.num_dst; ++i) add_operand(p, in.dst[i], true);
  // Compilers begin a merge of lane masks with `s_andn2_b64 x, x, exec`. If x was never written,
  // the bits that it keeps are of inactive lanes, which nobody reads.
  const bool merge = name == "s_andn2_b64" && in.src[1].kind == Kind::sgpr &&
                     in.src[1].index == kSgprExec && in.dst[0].index == in.src[0].index;
  const bool packed = is_packed_dwords(name);
  for (int i = merge ? 1 : 0; i < in.num_src; ++i) {
    if (goes_into_high(name, i) && in.src[i].kind == Kind::vgpr)
      p.into_high |= uint8_t(1 << p.num_reads);
    add_operand(p, packed ? selected_dwords(in, i) : in.src[i], false);
  }
  add_operand(p, in.resource, false);
  add_operand(p, in.soffset, false);
  add_implicit(in.opcode->reads, p.scalar_reads, p.reads_scc);
  add_implicit(in.opcode->writes, p.scalar_writes, p.writes_scc);
  if (p.action == Action::vector_memory || p.action == Action::lds) p.memory = memory_traits(in);
  if (in.opcode->cls == Class::lds_copy) add_scalar(p.scalar_reads, kSgprM0, 1);

  if (name == "v_readfirstlane_b32") p.lanes = Lanes::first;
  if (name == "v_readlane_b32") {
    p.lanes = Lanes::selected;
    p.spill = Spill::from_lane;
  }
  if (name == "v_writelane_b32") {
    p.num_reads = 0;  // the other lanes of its destination stay what they were
    p.spill = Spill::to_lane;
  }
  if (in.opcode->cls == Class::matrix) {
    p.lanes = Lanes::all;  // matrix instructions ignore EXEC
    p.writes_all_lanes = true;
    const MatrixShape s = matrix_shape(name);
    p.flops = 2ull * s.m * s.n * s.k * s.blocks;
    // Half of 4:2 sparse A is there. D, which accumulates, comes before the index, as C does else.
    if (name.starts_with("v_smfmac_")) p.flops /= 2;
    if (name.starts_with("v_smfmac_")) std::iter_swap(p.reads + 2, p.reads + 3);
  }
  if (in.opcode->cls == Class::branch && name != "s_setpc_b64" && name != "s_swappc_b64") {
    const int64_t at = int64_t(in.pc) + in.size + 4 * int64_t(in.simm);
    const auto& index = *kernel.index_of_pc;
    if (at >= 0 && size_t(at / 4) < index.size()) p.target = index[size_t(at / 4)];
  }
  p.hazard = hazard_traits(in, p.action, p.memory);
  p.hazard.causes = causes_of(p);
  return p;
}

static std::shared_ptr<const Program> prepare(const Kernel& kernel) {
  auto program = std::make_shared<Program>();
  program->text = kernel.text;
  program->index_of_pc = kernel.index_of_pc;
  program->instructions.reserve(kernel.text->size());
  for (const Instruction& in : *kernel.text) {
    const Prepared p = prepare_one(in, uint32_t(program->instructions.size()), kernel);
    program->vgprs = std::max(program->vgprs, p.vgprs);
    program->agprs = std::max(program->agprs, p.agprs);
    program->instructions.push_back(p);
  }
  return program;
}

std::shared_ptr<const Program> prepared(const Kernel& kernel) {
  OnceProgram& slot = *kernel.prepared;
  std::call_once(slot.once, [&] { slot.program = prepare(kernel); });
  return slot.program;
}

}  // namespace hk::emulator
