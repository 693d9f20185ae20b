#include "bounds/bounds.hpp"

#include <algorithm>

#include "common/instruction_sets.hpp"
#include "common/parallel.hpp"

namespace hk::cpu {

void read_bytes(const std::string& isa, const uint8_t* data, int64_t bytes, int threads) {
  const BoundKernels& kernels = *kernels_of(isa).bounds;
  constexpr int64_t kPiece = 1 << 18;
  parallel_for((bytes + kPiece - 1) / kPiece, threads, [&](int64_t i) {
    kernels.read(data + i * kPiece, std::min(kPiece, bytes - i * kPiece));
  });
}

void multiply_add(const std::string& isa, int64_t count, int threads) {
  const BoundKernels& kernels = *kernels_of(isa).bounds;
  constexpr int64_t kPiece = 1 << 20;
  parallel_for((count + kPiece - 1) / kPiece, threads,
               [&](int64_t i) { kernels.multiply_add(std::min(kPiece, count - i * kPiece)); });
}

void expand_weight(const std::string& isa, Format format, int64_t n, int64_t k,
                   const uint8_t* weight, int64_t repeats, int threads) {
  const BoundKernels& kernels = *kernels_of(isa).bounds;
  parallel_for(repeats, threads, [&](int64_t) { kernels.expand(format, n, k, weight); });
}

}  // namespace hk::cpu
