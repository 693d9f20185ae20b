#include "timing/operation.hpp"

#include <algorithm>
#include <cmath>

#include "checks/waits.hpp"
#include "machine/mnemonic.hpp"

namespace hk::emulator::timing {
namespace {

using P = Parameter;

bool is_wide(std::string_view name) {
  return has(name, "f64") || name.starts_with("v_mul_lo_u32") || name.starts_with("v_mul_hi_") ||
         name.starts_with("v_mad_u64_u32") || name.starts_with("v_mad_i64_i32");
}

bool is_packed(std::string_view name) { return name.starts_with("v_pk_") && has(name, "_f32"); }

uint32_t vector_clocks(const Prepared& p, const Parameters& parameters) {
  const std::string_view name = p.instruction->opcode->mnemonic;
  if (p.instruction->opcode->cls == Class::transcendental)
    return parameters.whole(P::transcendental) * (has(name, "f64") ? 2 : 1);
  if (has(name, "swap")) return parameters.whole(P::vector_swap);
  return parameters.whole(is_wide(name) ? P::vector_wide : P::vector);
}

// Clocks of the LDS for 64 lanes without conflicts.
uint32_t lds_clocks(const Prepared& p, const Parameters& parameters) {
  const Class cls = p.instruction->opcode->cls;
  const uint32_t bytes = std::max<uint32_t>(p.memory.bytes, 4) * kLanes * p.memory.accesses;
  const P rate = p.memory.access == Access::transpose ? P::lds_read_transposed
                 : cls == Class::lds_write            ? P::lds_write
                 : p.memory.bytes >= 12               ? P::lds_read_b128
                 : p.memory.bytes == 8                ? P::lds_read_b64
                                                      : P::lds_read_b32;
  return std::max(1u, uint32_t(std::ceil(bytes / parameters[rate])));
}

void wait(Operation& o, const Prepared& p) {
  o.role = Role::wait;
  const WaitFields fields = wait_fields(uint32_t(p.instruction->simm));
  o.vmcnt = int16_t(fields.vmcnt);
  o.lgkmcnt = int16_t(fields.lgkmcnt);
}

void matrix(Operation& o, const Prepared& p, const Parameters& parameters) {
  o.unit = Unit::matrix;
  const bool scaled = has(p.instruction->opcode->mnemonic, "_scale_");
  o.port = parameters.whole(scaled ? P::matrix_scaled_issue : P::matrix_issue);
  o.busy = uint32_t(std::lround(4.0 * p.hazard.passes * parameters[P::matrix]));
  const Operand& c = p.instruction->src[2];
  if (c.kind != Kind::vgpr && c.kind != Kind::agpr) return;
  const uint16_t row = uint16_t(c.index + (c.kind == Kind::agpr ? 256 : 0));
  for (int i = 0; i < o.num_reads; ++i)
    if (o.reads[i].first == row && o.reads[i].count == c.dwords) o.accumulator = int8_t(i);
}

void memory(Operation& o, const Prepared& p, const Parameters& parameters) {
  switch (p.action) {
    case Action::lds:
      o.unit = Unit::lds;
      o.busy = lds_clocks(p, parameters);
      o.counts_lgkm = true;
      if (p.instruction->opcode->cls == Class::lds_write) {
        const uint32_t dwords = std::max<uint32_t>(1, p.memory.bytes / 4) * p.memory.accesses;
        o.issue += dwords * parameters.whole(P::lds_write_issue);
      }
      break;
    case Action::scalar_load:
      o.unit = Unit::scalar_memory;
      o.counts_lgkm = true;
      break;
    default:
      o.unit = Unit::memory;
      o.counts_vm = true;
      o.counts_lgkm = p.memory.space == Space::flat;
  }
  o.role = p.memory.access == Access::store  ? Role::store
           : p.memory.access == Access::copy ? Role::copy
                                             : Role::load;
}

void idle(Operation& o, const Prepared& p) {
  const std::string_view name = p.instruction->opcode->mnemonic;
  const uint32_t simm = uint32_t(p.instruction->simm) & 0x7f;
  if (name == "s_nop") o.issue = 4 * ((simm & 15) + 1);
  if (name == "s_sleep") o.issue = std::max(4u, 64 * simm);
  if (name == "s_setprio") {
    o.role = Role::priority;
    o.priority = int8_t(simm & 3);
  }
}

Operation operation(const Prepared& p, const Parameters& parameters) {
  Operation o;
  o.issue = parameters.whole(P::issue);
  o.num_reads = p.num_reads;
  o.num_writes = p.num_writes;
  std::copy(std::begin(p.reads), std::end(p.reads), o.reads);
  std::copy(std::begin(p.writes), std::end(p.writes), o.writes);
  std::copy(std::begin(p.scalar_reads), std::end(p.scalar_reads), o.scalar_reads);
  std::copy(std::begin(p.scalar_writes), std::end(p.scalar_writes), o.scalar_writes);
  switch (p.action) {
    case Action::wait: wait(o, p); break;
    case Action::barrier: o.role = Role::barrier; break;
    case Action::end: o.role = Role::end; break;
    case Action::nop:
    case Action::write_back:
    case Action::invalidate: idle(o, p); break;
    case Action::lds:
    case Action::scalar_load:
    case Action::vector_memory: memory(o, p, parameters); break;
    case Action::compute:
      if (p.hazard.matrix) {
        matrix(o, p, parameters);
      } else if (p.hazard.valu) {
        o.unit = Unit::vector;
        o.busy = vector_clocks(p, parameters);
        o.packed = is_packed(p.instruction->opcode->mnemonic);
      } else {
        o.unit = Unit::scalar;
        o.busy = 4;
      }
      break;
    default:
      o.unit = p.instruction->opcode->cls == Class::branch ? Unit::branch : Unit::scalar;
      o.busy = 4;
  }
  return o;
}

}  // namespace

const char* unit_name(Unit unit) {
  static constexpr const char* kNames[] = {"scalar", "vector",        "matrix", "lds",
                                           "memory", "scalar memory", "branch", "control"};
  return kNames[int(unit)];
}

std::vector<Operation> operations(const Program& program, const Parameters& parameters) {
  std::vector<Operation> out;
  out.reserve(program.instructions.size());
  for (const Prepared& p : program.instructions) out.push_back(operation(p, parameters));
  return out;
}

}  // namespace hk::emulator::timing
