#include "semantics/semantics.hpp"

namespace hk::emulator {

namespace portable {
void add_all(Semantics&, Arch);
}
#ifdef HK_EMULATOR_AVX2
namespace avx2 {
void add_all(Semantics&, Arch);
}
#endif

namespace {

Semantics all_of(Arch arch) {
  Semantics all;
  add_scalar(all);
#ifdef HK_EMULATOR_AVX2
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    avx2::add_all(all, arch);
    return all;
  }
#endif
  portable::add_all(all, arch);
  return all;
}

}  // namespace

Execute find_semantics(std::string_view mnemonic, Arch arch) {
  static const Semantics gfx942 = all_of(Arch::gfx942), gfx950 = all_of(Arch::gfx950);
  const Semantics& all = arch == Arch::gfx942 ? gfx942 : gfx950;
  const auto found = all.find(std::string(mnemonic));
  return found == all.end() ? nullptr : found->second;
}

}  // namespace hk::emulator
