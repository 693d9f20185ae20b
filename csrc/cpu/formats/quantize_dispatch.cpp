#include "formats/quantize_dispatch.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "common/instruction_sets.hpp"
#include "common/parallel.hpp"

namespace hk::cpu {
namespace {

int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }

// Calls body(row) for all rows; an item has enough rows to be worth a thread.
void for_each_row(const QuantizeArgs& args, int threads, const std::function<void(int64_t)>& body) {
  constexpr int64_t kElements = 1 << 15;
  const int64_t rows = std::max<int64_t>(1, kElements / std::max<int64_t>(1, args.k));
  parallel_for(ceil_div(args.m, rows), threads, [&](int64_t item) {
    for (int64_t row = item * rows; row < std::min(args.m, (item + 1) * rows); ++row) body(row);
  });
}

void compute_scales(const QuantizeKernels& kernels, const QuantizeArgs& args, int threads) {
  const int64_t groups = ceil_div(args.k, args.group_columns);
  std::vector<float> maxima(size_t(args.m * groups));
  for_each_row(args, threads,
               [&](int64_t row) { kernels.row_maxima(args, row, maxima.data() + row * groups); });
  for (int64_t first = 0; first < args.m; first += args.group_rows)
    for (int64_t g = 0; g < groups; ++g) {
      float top = 0.0f;
      for (int64_t row = first; row < std::min(args.m, first + args.group_rows); ++row) {
        const float x = maxima[size_t(row * groups + g)];
        top = x > top || std::isnan(x) ? x : top;
        if (std::isnan(top)) break;
      }
      args.scales[first / args.group_rows * groups + g] = kernels.fp8_scale(args.format, top);
    }
}

}  // namespace

void quantize_fp8(const std::string& isa, const QuantizeArgs& args, bool dynamic, int threads) {
  const QuantizeKernels& kernels = *kernels_of(isa).quantize;
  if (dynamic) compute_scales(kernels, args, threads);
  for_each_row(args, threads, [&](int64_t row) { kernels.quantize_row(args, row); });
}

void quantize_mx(const std::string& isa, const QuantizeArgs& args, int threads) {
  const QuantizeKernels& kernels = *kernels_of(isa).quantize;
  for_each_row(args, threads, [&](int64_t row) { kernels.quantize_row(args, row); });
}

}  // namespace hk::cpu
