#include "common/instruction_sets.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "common/amx_permission.hpp"

// The build defines HK_CPU_LEVELS: LEVEL(isa) for each instruction set that it compiles.
namespace hk::cpu {

#define LEVEL(isa)              \
  namespace isa {               \
  extern const Kernels kernels; \
  }
HK_CPU_LEVELS
#undef LEVEL

namespace {

struct Level {
  std::string isa;
  const Kernels& kernels;
};

const Level* compiled(const std::string& isa) {
#define LEVEL(isa) {#isa, isa::kernels},
  static const Level levels[] = {HK_CPU_LEVELS};
#undef LEVEL
  const Level* found = std::find_if(std::begin(levels), std::end(levels),
                                    [&](const Level& l) { return l.isa == isa; });
  return found == std::end(levels) ? nullptr : found;
}

// All instruction sets of this architecture, from fast to slow.
#if defined(__x86_64__)
const char* const all_isas[] = {"amx", "avx512_bf16", "avx512", "avx2", "portable"};

bool processor_has_dot_products() { return __builtin_cpu_supports("avx512vnni"); }

bool processor_has(const std::string& isa) {
  if (isa == "amx") return processor_has("avx512_bf16") && why_no_amx().empty();
  if (isa == "avx512_bf16") return processor_has("avx512") && __builtin_cpu_supports("avx512bf16");
  if (isa == "avx512")
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (isa == "avx2")
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
  return true;
}
#else
const char* const all_isas[] = {"portable"};

bool processor_has_dot_products() { return false; }
bool processor_has(const std::string&) { return true; }
#endif

std::atomic<bool> dot_products = processor_has_dot_products();

}  // namespace

bool has_dot_products() { return dot_products.load(std::memory_order_relaxed); }
bool use_dot_products(bool use) {
  return dot_products.exchange(use && processor_has_dot_products());
}

const Kernels& kernels_of(const std::string& isa) {
  if (const Level* level = compiled(isa)) return level->kernels;
  throw std::invalid_argument("isa: " + isa + " is not compiled into this build");
}

std::vector<std::string> available_isas() {
  std::vector<std::string> found;
  for (const std::string isa : all_isas)
    if (compiled(isa) && processor_has(isa)) found.push_back(isa);
  return found;
}

std::vector<std::string> left_out_isas() {
  std::vector<std::string> found;
  for (const std::string isa : all_isas)
    if (!compiled(isa)) found.push_back(isa);
  return found;
}

}  // namespace hk::cpu
