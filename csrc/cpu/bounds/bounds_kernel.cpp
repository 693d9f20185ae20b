// The work of bounds.hpp. An empty assembly statement with a register as its input keeps the
// compiler from removing the code that fills the register.

#include "bounds/bounds.hpp"
#include "formats/weight_format.hpp"

namespace hk::cpu::HK_ISA {
namespace {

// Makes the compiler treat `x` as used, in a register.
HK_INLINE void keep(vec x) {
#if defined(__SSE2__)
  asm volatile("" : : "v"(x));
#else
  asm volatile("" : : "m"(x));
#endif
}

// Reads like the multiply: with a prefetch further ahead than the hardware's, which stops at pages.
void read(const uint8_t* data, int64_t bytes) {
  for (int64_t i = 0; i + 64 <= bytes; i += 64) {
    __builtin_prefetch(data + i + kPrefetchAhead);
    for (int64_t j = 0; j < 64; j += sizeof(vec))
      keep(load(reinterpret_cast<const float*>(data + i + j)));
  }
}

// Twelve chains are more than hide the latency, and every instruction set has enough registers.
void multiply_add(int64_t count) {
  constexpr int chains = 12;
  vec sum[chains], x = splat(0.5f), y = splat(1.0f);
  for (vec& s : sum) s = y;
  for (int64_t done = 0; done < count; done += chains * VL) {
#pragma GCC unroll 12
    for (int c = 0; c < chains; ++c) sum[c] = sum[c] * x + y;
  }
  for (const vec& s : sum) keep(s);
}

void expand(Format format, int64_t n, int64_t k, const uint8_t* weight) {
  with_weight_format(format, [&](auto type) {
    using W = decltype(type);
    const int64_t slabs = (n + NR - 1) / NR * ((k + kSlabK - 1) / kSlabK);
    for (int64_t s = 0; s < slabs; ++s)
      for_each_k<W>(weight + s * W::slab_bytes, [&](int64_t, const vec(&w)[NV]) HK_INLINED {
        for (int v = 0; v < NV; ++v) keep(w[v]);
      });
  });
}

}  // namespace

extern const BoundKernels bound_kernels;
const BoundKernels bound_kernels{read, multiply_add, expand};

}  // namespace hk::cpu::HK_ISA
