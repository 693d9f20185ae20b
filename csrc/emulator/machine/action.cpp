#include "machine/action.hpp"

#include <string_view>
#include <unordered_map>

#include "isa/decode.hpp"
#include "machine/memory_traits.hpp"

namespace hk::emulator {
namespace {

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

// Whether an instruction's sc1 is set, so that it reaches the device's or the system's caches.
// Without sc1, other workgroups do not see its effect.
bool reaches_device(const Instruction& in) { return in.words[0] >> 15 & 1; }

}  // namespace

Action action_of(const Instruction& in) {
  const std::string_view name = in.opcode->mnemonic;
  if (is_unknown(in)) return Action::unknown;
  const Class cls = in.opcode->cls;
  if (cls == Class::valu || cls == Class::transcendental || cls == Class::matrix)
    return in.opcode->execute ? Action::compute : Action::unknown;
  if (auto found = actions().find(name); found != actions().end()) return found->second;
  if (name == "buffer_wbl2") return reaches_device(in) ? Action::write_back : Action::nop;
  if (name == "buffer_inv") return reaches_device(in) ? Action::invalidate : Action::nop;
  switch (cls) {
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

bool is_emulated(const Opcode& opcode) {
  Instruction in;
  in.opcode = &opcode;
  const Action action = action_of(in);
  const bool memory = action == Action::lds || action == Action::vector_memory;
  return action != Action::unknown && (!memory || memory_traits(in).supported);
}

}  // namespace hk::emulator
