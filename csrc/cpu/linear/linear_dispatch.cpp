// Cuts a linear call into work items. Chunks of rows have float32 activations that fit the threads'
// caches; in each chunk, an item is a block of rows times a block of columns.

#include "linear/linear_dispatch.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/instruction_sets.hpp"
#include "common/large_pages.hpp"
#include "common/parallel.hpp"
#include "common/scratch.hpp"

namespace hk::cpu {
namespace {

int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }

// Begin of the i-th of `parts` even shares of [0, count).
int64_t share(int64_t count, int64_t parts, int64_t i) { return count * i / parts; }

// Calls body(row) for all rows. A loop that takes no longer than waking a thread stays on the
// caller's thread.
void for_each_row(const LinearArgs& args, int64_t rows, int threads,
                  const std::function<void(int64_t)>& body) {
  constexpr int64_t kWorthAThread = 1 << 17;  // elements whose widening takes 15 us
  const int64_t cost =
      (args.activations == Activations::none ? 1 : 4) + (args.rotation == 0 ? 0 : 2);
  const int64_t useful = std::max<int64_t>(1, rows * args.k * cost / kWorthAThread);
  parallel_for(rows, int(std::min<int64_t>(threads, useful)), body);
}

float largest_of_all(const LinearKernels& kernels, const LinearArgs& args, int threads) {
  std::vector<float> tops(size_t(args.m));
  for_each_row(args, args.m, threads,
               [&](int64_t row) { tops[size_t(row)] = kernels.row_max(args, row); });
  float top = 0.0f;
  for (const float x : tops)
    if (x > top || std::isnan(x)) top = x;
  return top;
}

// Prepares rows `first` to `first + rows` of X for the multiply, in memory that the thread keeps.
PreparedRows prepare_rows(const LinearKernels& kernels, const LinearArgs& args, int64_t first,
                          int64_t rows, float tensor_max, int threads) {
  thread_local Scratch scratch;
  const int64_t blocks = ceil_div(args.k, kScaleBlock);
  const int64_t of_row = ceil_div(args.k, kBlockK) * kBlockK;
  const bool in_place = kernels.takes_in_place(args, rows);
  const int64_t floats =
      in_place ? 0 : rows * of_row + PreparedRows::kReadPast * kMostPairBlock / 2;
  const bool by_blocks = args.activations == Activations::token_block;
  const int64_t factors = rows * (by_blocks ? 1 + blocks : 1);
  auto* data = static_cast<float*>(scratch.at_least(int64_t(sizeof(float)) * (floats + factors)));
  const PreparedRows prepared{data,  data + floats, by_blocks ? data + floats + rows : nullptr,
                              first, rows,          in_place};
  if (in_place)
    std::fill_n(prepared.factors, rows, 1.0f);
  else
    for_each_row(args, rows, threads,
                 [&](int64_t row) { kernels.prepare(args, prepared, row, tensor_max); });
  return prepared;
}

constexpr int64_t kMostRows = 256;  // most rows of a work item

struct Blocks {
  int64_t of_rows, of_panels;
};

// Numbers of blocks of rows and columns. Blocks fit the caches, and several threads get enough of
// them for balance. Columns are cut first, since each block of rows expands the same weight again.
Blocks cut(int64_t rows, int64_t panels, int64_t panel_columns, int threads) {
  constexpr int64_t kMostColumns = 256, kFewestRows = 12, kItemsPerThread = 4;
  const int64_t wanted = threads == 1 ? 1 : kItemsPerThread * threads;
  Blocks blocks{ceil_div(rows, kMostRows), ceil_div(panels * panel_columns, kMostColumns)};
  blocks.of_panels = std::max(blocks.of_panels, ceil_div(wanted, blocks.of_rows));
  blocks.of_panels = std::min(blocks.of_panels, panels);
  if (blocks.of_rows * blocks.of_panels < wanted) {
    const int64_t most = std::max(blocks.of_rows, rows / kFewestRows);
    blocks.of_rows = std::clamp(ceil_div(wanted, blocks.of_panels), blocks.of_rows, most);
  }
  return blocks;
}

// Number of chunks of rows. A chunk's prepared activations take up to 4 MiB per thread. It has a
// block of rows at least, since each chunk streams the whole weight again.
int64_t count_chunks(int64_t rows, int64_t k, int threads) {
  const int64_t fitting = threads * (int64_t{4} << 20) / (int64_t(sizeof(float)) * k);
  return ceil_div(rows, std::max(fitting, kMostRows));
}

void multiply_chunk(const LinearKernels& kernels, const LinearArgs& args,
                    const PreparedRows& prepared, int threads) {
  const int64_t panels = ceil_div(args.n, kernels.panel_columns);
  const Blocks blocks = cut(prepared.rows, panels, kernels.panel_columns, threads);
  parallel_for(blocks.of_rows * blocks.of_panels, threads, [&](int64_t i) {
    const int64_t r = i % blocks.of_rows, p = i / blocks.of_rows;
    const LinearItem item{
        share(prepared.rows, blocks.of_rows, r), share(prepared.rows, blocks.of_rows, r + 1),
        share(panels, blocks.of_panels, p), share(panels, blocks.of_panels, p + 1)};
    kernels.multiply(args, prepared, item, thread_scratch(kernels.scratch_bytes(item)));
  });
}

// Multiplies few rows; each thread streams a few runs of panels.
void multiply_skinny(const LinearKernels& kernels, const LinearArgs& args,
                     const PreparedRows& prepared, int threads) {
  constexpr int64_t kRunsPerThread = 4;
  const int64_t panels = ceil_div(args.n, kernels.panel_columns);
  const int64_t runs = std::min<int64_t>(panels, threads == 1 ? 1 : kRunsPerThread * threads);
  parallel_for(runs, threads, [&](int64_t i) {
    kernels.multiply_skinny(args, prepared, share(panels, runs, i), share(panels, runs, i + 1));
  });
}

}  // namespace

int64_t packed_bytes(const std::string& isa, Format format, int64_t n, int64_t k) {
  const LinearKernels& kernels = *kernels_of(isa).linear;
  return ceil_div(n, kernels.panel_columns) * kernels.panel_bytes(format, k);
}

void pack_weight(const std::string& isa, const PackArgs& args, int threads) {
  const LinearKernels& kernels = *kernels_of(isa).linear;
  prefer_large_pages(args.out, packed_bytes(isa, args.format, args.n, args.k));
  parallel_for(ceil_div(args.n, kernels.panel_columns), threads,
               [&](int64_t panel) { kernels.pack(args, panel, panel + 1); });
}

void linear(const std::string& isa, const LinearArgs& args, int threads) {
  if (args.m == 0) return;
  const LinearKernels& kernels = *kernels_of(isa).linear;
  float tensor_max = 0.0f;
  if (args.activations == Activations::tensor && !args.input_scale)
    tensor_max = largest_of_all(kernels, args, threads);
  const int64_t chunks = count_chunks(args.m, args.k, threads);
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t first = share(args.m, chunks, c), rows = share(args.m, chunks, c + 1) - first;
    const PreparedRows prepared = prepare_rows(kernels, args, first, rows, tensor_max, threads);
    const auto run = rows <= kernels.skinny_rows(args) ? multiply_skinny : multiply_chunk;
    run(kernels, args, prepared, threads);
  }
}

void look_up(const std::string& isa, const RowsArgs& args, int threads) {
  constexpr int64_t kWorthAThread = 1 << 14;  // elements
  const LinearKernels& kernels = *kernels_of(isa).linear;
  const int64_t useful = std::max<int64_t>(1, args.count * args.k / kWorthAThread);
  const int64_t bytes = int64_t(sizeof(float)) * ceil_div(args.k, kSlabK) * kSlabK;
  parallel_for(args.count, int(std::min<int64_t>(threads, useful)), [&](int64_t i) {
    kernels.look_up(args, i, static_cast<float*>(thread_scratch(bytes)));
  });
}

}  // namespace hk::cpu
