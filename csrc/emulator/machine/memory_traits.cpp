#include "machine/memory_traits.hpp"

#include <string_view>
#include <utility>

#include "machine/mnemonic.hpp"

namespace hk::emulator {
namespace {

Atomic atomic_of(std::string_view name) {
  // the first match counts, so longer names come before their parts
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
  if (name.starts_with("ds_read_b64_tr_")) return Access::transpose;
  switch (in.opcode->cls) {
    case Class::lds_copy: return Access::copy;
    case Class::vmem_store:
    case Class::lds_write: return Access::store;
    case Class::lds_atomic:
    case Class::global_atomic: return Access::atomic;
    default: return has(name, "store") ? Access::store : Access::load;
  }
}

}  // namespace

MemoryTraits memory_traits(const Instruction& in) {
  const std::string_view name = in.opcode->mnemonic;
  MemoryTraits m;
  m.space = name.starts_with("buffer")    ? Space::buffer
            : name.starts_with("flat")    ? Space::flat
            : name.starts_with("scratch") ? Space::scratch
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
  if (m.access == Access::transpose)
    m.transposed_bits = has(name, "_b16") ? 16 : has(name, "_b8") ? 8 : 4;
  const bool rare = has(name, "addtid") || has(name, "wrxchg2") || has(name, "append") ||
                    has(name, "consume") || has(name, "wrap") ||
                    (has(name, "_tr_") && m.access != Access::transpose) ||
                    (m.space == Space::scratch && m.access == Access::copy) ||
                    (m.access == Access::atomic && m.atomic == Atomic::none) || in.gds;
  m.supported = !rare;
  return m;
}

}  // namespace hk::emulator
