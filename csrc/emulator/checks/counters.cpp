#include "checks/counters.hpp"

namespace hk::emulator {

const char* class_name(Class cls) {
  switch (cls) {
    case Class::salu: return "salu";
    case Class::valu: return "valu";
    case Class::transcendental: return "transcendental";
    case Class::matrix: return "matrix";
    case Class::smem: return "smem";
    case Class::vmem_load: return "vmem_load";
    case Class::vmem_store: return "vmem_store";
    case Class::lds_copy: return "lds_copy";
    case Class::lds_read: return "lds_read";
    case Class::lds_write: return "lds_write";
    case Class::lds_atomic: return "lds_atomic";
    case Class::global_atomic: return "global_atomic";
    case Class::scratch: return "scratch";
    case Class::branch: return "branch";
    case Class::wait: return "wait";
    case Class::barrier: return "barrier";
    case Class::message: return "message";
    case Class::end: return "end";
    case Class::nop: return "nop";
  }
  return "unknown";
}

Counters make_counters(const Launch& launch, std::span<const Counts> counts) {
  Counters c;
  static constexpr const char* kLevels[] = {"global_read", "global_write", "lds_read", "lds_write",
                                            "lds_copy"};
  for (int level = 0; level < Counts::kLevels; ++level) {
    uint64_t& total = c.bytes[kLevels[level]];
    for (const Counts& part : counts) total += part.bytes[size_t(level)];
  }
  const auto& program = launch.program->instructions;
  for (size_t i = 0; i < program.size(); ++i) {
    uint64_t executed = 0, taken = 0, needed = 0;
    for (const Counts& part : counts) {
      executed += part.executed[i];
      taken += part.phases[i][0];
      needed += part.phases[i][1];
    }
    if (executed == 0) continue;
    const Instruction& in = *program[i].instruction;
    c.instructions += executed;
    c.executed[in.pc] = executed;
    c.by_class[class_name(in.opcode->cls)] += executed;
    c.by_mnemonic[std::string(in.opcode->mnemonic)] += executed;
    c.matrix_flops += executed * program[i].flops;
    const bool exchange = program[i].memory.access == Access::swizzle ||
                          program[i].memory.access == Access::permute ||
                          program[i].memory.access == Access::bpermute;
    if (needed)
      c.lds_phases[in.pc] = {taken, needed};
    else if ((program[i].action == Action::lds && !exchange) || in.opcode->cls == Class::lds_copy)
      c.lds_unmodelled[std::string(in.opcode->mnemonic)] += executed;
  }
  return c;
}

}  // namespace hk::emulator
