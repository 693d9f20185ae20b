#include "common/instruction_sets.hpp"

#include <atomic>
#include <stdexcept>

#include "common/amx_permission.hpp"

namespace hk::cpu {

namespace portable {
extern const Kernels kernels;
}
namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}
namespace avx512_bf16 {
extern const Kernels kernels;
}
namespace amx {
extern const Kernels kernels;
}

namespace {

bool processor_has_dot_products() {
#if defined(HK_CPU_AVX512)
  return __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

std::atomic<bool> dot_products = processor_has_dot_products();

#if defined(HK_CPU_AVX512)
bool processor_has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
bool processor_has_avx512_bf16() {
  return processor_has_avx512() && __builtin_cpu_supports("avx512bf16");
}
#endif

}  // namespace

bool has_dot_products() { return dot_products.load(std::memory_order_relaxed); }
bool use_dot_products(bool use) {
  return dot_products.exchange(use && processor_has_dot_products());
}

const Kernels& kernels_of(const std::string& isa) {
#ifdef HK_CPU_AMX
  if (isa == "amx") return amx::kernels;
#endif
#ifdef HK_CPU_AVX512_BF16
  if (isa == "avx512_bf16") return avx512_bf16::kernels;
#endif
#ifdef HK_CPU_AVX512
  if (isa == "avx512") return avx512::kernels;
#endif
#ifdef HK_CPU_AVX2
  if (isa == "avx2") return avx2::kernels;
#endif
  if (isa == "portable") return portable::kernels;
  throw std::invalid_argument("isa: " + isa + " is not compiled into this build");
}

std::vector<std::string> available_isas() {
  std::vector<std::string> found;
#if defined(HK_CPU_AVX512)
  if (processor_has_avx512_bf16() && why_no_amx().empty()) found.push_back("amx");
  if (processor_has_avx512_bf16()) found.push_back("avx512_bf16");
  if (processor_has_avx512()) found.push_back("avx512");
#endif
#if defined(HK_CPU_AVX2)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c"))
    found.push_back("avx2");
#endif
  found.push_back("portable");
  return found;
}

}  // namespace hk::cpu
