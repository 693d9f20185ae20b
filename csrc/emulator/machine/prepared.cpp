#include "machine/prepared.hpp"

#include <array>
#include <charconv>
#include <string_view>
#include <unordered_map>

#include "isa/decode.hpp"
#include "machine/wave.hpp"

namespace hk::emulator {
namespace {

bool starts(std::string_view s, std::string_view prefix) { return s.starts_with(prefix); }
bool has(std::string_view s, std::string_view part) { return s.find(part) != s.npos; }

void add_scalar(uint64_t (&mask)[2], unsigned index, unsigned dwords) {
  for (unsigned i = index; i < index + dwords && i < 128; ++i) mask[i / 64] |= 1ull << i % 64;
}

void add_operand(Prepared& p, const Operand& o, bool write) {
  auto& scalars = write ? p.scalar_writes : p.scalar_reads;
  switch (o.kind) {
    case Kind::vgpr:
    case Kind::agpr: {
      const Registers r{uint16_t(o.index + (o.kind == Kind::agpr ? 256 : 0)), o.dwords};
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

const std::unordered_map<std::string_view, Action>& actions() {
  static const std::unordered_map<std::string_view, Action> table = {
      {"s_waitcnt", Action::wait},
      {"s_barrier", Action::barrier},
      {"s_endpgm", Action::end},
      {"s_trap", Action::trap},
      {"s_branch", Action::branch},
      {"s_cbranch_scc0", Action::branch_scc0},
      {"s_cbranch_scc1", Action::branch_scc1},
      {"s_cbranch_vccz", Action::branch_vccz},
      {"s_cbranch_vccnz", Action::branch_vccnz},
      {"s_cbranch_execz", Action::branch_execz},
      {"s_cbranch_execnz", Action::branch_execnz},
      {"s_call_b64", Action::call},
      {"s_setpc_b64", Action::setpc},
      {"s_swappc_b64", Action::swappc},
      {"s_getpc_b64", Action::getpc},
      {"s_memtime", Action::time},
      {"s_memrealtime", Action::time},
  };
  return table;
}

// v_pk_*_f32, v_pk_mov_b32: op_sel and op_sel_hi choose a dword of each source for each half of the
// result; a dword that neither chooses is not read.
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
  return starts(name, "v_pk_") && (name.ends_with("_f32") || name == "v_pk_mov_b32");
}

// Sources whose second dword reaches only the second dword of the result. Compilers leave it
// undefined where they use the low dword alone (LLVM: 32-bit address arithmetic as v_mad_u64_u32
// with an undefined high half of the addend).
bool goes_into_high(std::string_view name, int source) {
  if (name == "v_mad_u64_u32" || name == "v_mad_i64_i32") return source == 2;
  return name == "v_lshl_add_u64" && source != 1;
}

Action action_of(const Instruction& in) {
  const std::string_view name = in.opcode->mnemonic;
  if (is_unknown(in)) return Action::unknown;
  if (auto found = actions().find(name); found != actions().end()) return found->second;
  switch (in.opcode->cls) {
    case Class::smem: return Action::scalar_load;
    case Class::lds_read:
    case Class::lds_write:
    case Class::lds_atomic: return Action::lds;
    case Class::vmem_load:
    case Class::vmem_store:
    case Class::lds_copy:
    case Class::global_atomic:
    case Class::scratch: return Action::vector_memory;
    case Class::nop:
    case Class::message: return Action::nop;
    default: return in.opcode->execute ? Action::compute : Action::unknown;
  }
}

Atomic atomic_of(std::string_view name) {
  // the first match counts: longer names before their parts
  static constexpr std::pair<std::string_view, Atomic> kNames[] = {
      {"pk_add_f16", Atomic::pk_add_f16},
      {"pk_add_bf16", Atomic::pk_add_bf16},
      {"pk_add_rtn_f16", Atomic::pk_add_f16},
      {"pk_add_rtn_bf16", Atomic::pk_add_bf16},
      {"cmpst_f", Atomic::fcmpswap},
      {"cmpst_rtn_f", Atomic::fcmpswap},
      {"cmpst", Atomic::cmpswap},
      {"cmpswap", Atomic::cmpswap},
      {"add_f", Atomic::fadd},
      {"add_rtn_f", Atomic::fadd},
      {"min_f", Atomic::fmin},
      {"min_rtn_f", Atomic::fmin},
      {"max_f", Atomic::fmax},
      {"max_rtn_f", Atomic::fmax},
      {"rsub", Atomic::rsub},
      {"sub", Atomic::sub},
      {"add", Atomic::add},
      {"inc", Atomic::inc},
      {"dec", Atomic::dec},
      {"smin", Atomic::smin},
      {"umin", Atomic::umin},
      {"smax", Atomic::smax},
      {"umax", Atomic::umax},
      {"min_i", Atomic::smin},
      {"min_rtn_i", Atomic::smin},
      {"min_u", Atomic::umin},
      {"min_rtn_u", Atomic::umin},
      {"max_i", Atomic::smax},
      {"max_rtn_i", Atomic::smax},
      {"max_u", Atomic::umax},
      {"max_rtn_u", Atomic::umax},
      {"and", Atomic::bit_and},
      {"xor", Atomic::bit_xor},
      {"mskor", Atomic::mskor},
      {"or", Atomic::bit_or},
      {"wrxchg", Atomic::swap},
      {"swap", Atomic::swap},
  };
  for (auto [part, atomic] : kNames)
    if (has(name, part)) return atomic;
  return Atomic::none;
}

Access access_of(const Instruction& in) {
  const std::string_view name = in.opcode->mnemonic;
  if (name == "ds_swizzle_b32") return Access::swizzle;
  if (name == "ds_permute_b32") return Access::permute;
  if (name == "ds_bpermute_b32") return Access::bpermute;
  if (name == "ds_read_b64_tr_b16") return Access::transpose16;
  switch (in.opcode->cls) {
    case Class::lds_copy: return Access::copy;
    case Class::vmem_store:
    case Class::lds_write: return Access::store;
    case Class::lds_atomic:
    case Class::global_atomic: return Access::atomic;
    default: return has(name, "store") ? Access::store : Access::load;
  }
}

MemoryTraits memory_of(const Instruction& in) {
  const std::string_view name = in.opcode->mnemonic;
  MemoryTraits m;
  m.space = starts(name, "buffer")    ? Space::buffer
            : starts(name, "flat")    ? Space::flat
            : starts(name, "scratch") ? Space::scratch
                                      : Space::global;
  m.access = access_of(in);
  m.bytes = in.bytes;
  if (m.access == Access::atomic) m.atomic = atomic_of(name);
  if (has(name, "read2") || has(name, "write2")) m.accesses = 2;
  m.strided64 = has(name, "st64");
  m.sign_extend =
      has(name, "sbyte") || has(name, "sshort") || has(name, "_i8") || has(name, "_i16");
  m.d16 = has(name, "d16");
  m.high = has(name, "d16_hi");
  const bool rare = has(name, "addtid") || has(name, "wrxchg2") || has(name, "append") ||
                    has(name, "consume") || has(name, "wrap") ||
                    (has(name, "_tr_") && m.access != Access::transpose16) ||
                    (m.space == Space::scratch && m.access == Access::copy) ||
                    (m.access == Access::atomic && m.atomic == Atomic::none) || in.gds;
  m.supported = !rare;
  return m;
}

struct MatrixShape {
  unsigned m = 0, n = 0, k = 0, blocks = 1;
};

// v_mfma_f32_32x32x4_2b_bf16: M, N, K, blocks.
MatrixShape shape_of(std::string_view name) {
  MatrixShape s;
  const size_t x = name.find('x');
  const char* end = name.data() + name.size();
  const char* p = name.data() + name.rfind('_', x) + 1;
  for (unsigned* field : {&s.m, &s.n, &s.k}) p = std::from_chars(p, end, *field).ptr + 1;
  if (const size_t b = name.find("b_", size_t(p - name.data()) - 1); b != name.npos)
    if (const size_t u = name.rfind('_', b); u != name.npos && u + 1 < b)
      std::from_chars(name.data() + u + 1, name.data() + b, s.blocks);
  return s;
}

// Passes of 4 clocks, as LLVM's scheduling model for gfx942 and gfx950 has them (its s_nop
// counts after each instruction were compared with these).
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

HazardTraits hazard_of(const Instruction& in, const Prepared& p) {
  const std::string_view name = in.opcode->mnemonic;
  HazardTraits h;
  const Class cls = in.opcode->cls;
  h.matrix = cls == Class::matrix;
  h.valu = cls == Class::valu || cls == Class::transcendental;
  h.transcendental = cls == Class::transcendental;
  h.dot = starts(name, "v_dot");
  h.dpp = in.dpp;
  h.partial = h.valu && ((in.sdwa && in.dst_sel != 6) || (in.op_sel & 8) != 0);
  h.lane_access =
      name == "v_readlane_b32" || name == "v_readfirstlane_b32" || name == "v_writelane_b32";
  h.permlane_swap = starts(name, "v_permlane");
  h.div_fmas = starts(name, "v_div_fmas");
  h.vector_memory = p.action == Action::vector_memory;
  h.lds = p.action == Action::lds;
  h.reads_m0_late = cls == Class::lds_copy || starts(name, "s_sendmsg") || starts(name, "s_movrel");
  h.long_store = h.vector_memory && p.memory.access == Access::store && p.memory.bytes > 8 &&
                 (p.memory.space != Space::buffer || in.soffset.kind != Kind::sgpr);
  if (starts(name, "s_setreg")) h.set_register = int16_t(in.simm & 63);
  if (starts(name, "s_getreg")) h.get_register = int16_t(in.simm & 63);
  if (h.matrix) {
    h.f64 = has(name, "f64");
    h.xdl = !h.f64 && !(name.ends_with("_f32"));
    h.passes = passes_of(in, shape_of(name));
  }
  return h;
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
  // `s_andn2_b64 x, x, exec` begins a merge of lane masks: what it keeps of an x never written is
  // of inactive lanes, which nobody looks at. Compilers write it so.
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
  if (p.action == Action::vector_memory || p.action == Action::lds) p.memory = memory_of(in);
  if (in.opcode->cls == Class::lds_copy) add_scalar(p.scalar_reads, kSgprM0, 1);

  if (name == "v_readfirstlane_b32") p.lanes = Lanes::first;
  if (name == "v_readlane_b32") p.lanes = Lanes::selected;
  if (name == "v_writelane_b32") p.num_reads = 0;  // one lane of its destination stays what it was
  if (in.opcode->cls == Class::matrix) {
    p.lanes = Lanes::all;  // matrix instructions ignore EXEC
    p.writes_all_lanes = true;
    const MatrixShape s = shape_of(name);
    p.flops = 2ull * s.m * s.n * s.k * s.blocks;
  }
  if (in.opcode->cls == Class::branch && name != "s_setpc_b64" && name != "s_swappc_b64") {
    const int64_t at = int64_t(in.pc) + in.size + 4 * int64_t(in.simm);
    const auto& index = *kernel.index_of_pc;
    if (at >= 0 && size_t(at / 4) < index.size()) p.target = index[size_t(at / 4)];
  }
  p.hazard = hazard_of(in, p);
  return p;
}

bool is_emulated(const Opcode& opcode) {
  Instruction in;
  in.opcode = &opcode;
  const Action action = action_of(in);
  const bool memory = action == Action::lds || action == Action::vector_memory;
  return action != Action::unknown && (!memory || memory_of(in).supported);
}

std::shared_ptr<const Program> prepare(const Kernel& kernel) {
  auto program = std::make_shared<Program>();
  program->text = kernel.text;
  program->index_of_pc = kernel.index_of_pc;
  program->instructions.reserve(kernel.text->size());
  for (const Instruction& in : *kernel.text)
    program->instructions.push_back(
        prepare_one(in, uint32_t(program->instructions.size()), kernel));
  return program;
}

}  // namespace hk::emulator
