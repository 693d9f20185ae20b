// The multiply of many rows with a packed weight, for one work item: some rows times some panels.
//
//   for each block of K (kBlockK elements):
//     for each panel of NR columns:
//       expand the panel's slabs to float32, into L1
//       for each register tile of rows:  C += A B                   A in L2, C float32 in L2
//       after the last block: scale, add the bias, round once, store
//
// Choices. Multiplying costs rows * NR / VL / 2 clocks per element along K, expanding about
// three: at 128 rows a hundredth. So every format runs at the rate of float32, and no copy of
// the weight is made that is larger than one panel's block.

#include "linear/linear_store.hpp"
#include "formats/weight_format.hpp"

namespace hk::cpu::HK_ISA {
namespace {

HK_INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
HK_INLINE int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

// `slabs` slabs as rows of NR float32 values. `block_scales`: one per kScaleBlock along K.
using Expand = void (*)(const uint8_t* slab, int64_t slabs, const float* block_scales, float* out);

// The power of two first: together with a large scale it might overflow.
template <class W, bool block_scaled>
void expand(const uint8_t* slab, int64_t slabs, const float* block_scales, float* out) {
  for (int64_t s = 0; s < slabs; ++s, slab += W::slab_bytes, out += kSlabK * NR) {
    vec scale[NV] = {};
    if constexpr (W::mx) column_scales<W>(slab, scale);
    if constexpr (block_scaled)
      for (auto& x : scale) x = splat(block_scales[s * kSlabK / kScaleBlock]);
    for_each_k<W>(slab, [&](int64_t k, const vec(&w)[NV]) HK_INLINED {
      for (int v = 0; v < NV; ++v) {
        vec x = w[v];
        if constexpr (W::factor != 1.0f) x *= splat(W::factor);
        if constexpr (W::mx || block_scaled) x *= scale[v];
        store(out + k * NR + v * VL, x);
      }
    });
  }
}

// Asks for what is expanded next, a few cache lines per slab multiplied: a phase that only
// multiplies would leave the memory idle.
struct Prefetch {
  const uint8_t *at, *end;
  int64_t bytes_per_slab;

  HK_INLINE void step() {
    const uint8_t* until = at + bytes_per_slab < end ? at + bytes_per_slab : end;
    for (; at < until; at += 64) __builtin_prefetch(at, 0, 2);
  }
};

// C (+)= A B for `count` rows; A has rows of kBlockK, B and C have rows of NR.
template <int rows = MR>
HK_INLINE void multiply_tile(int64_t count, const float* a, const float* b, int64_t k, float* c,
                             bool first, Prefetch& next) {
  if constexpr (rows > 1)
    if (count < rows) return multiply_tile<rows - 1>(count, a, b, k, c, first, next);
  RegisterTile<rows> tile;
  if (first)
    tile.zero();
  else
    tile.load_from(c, NR);
  for (int64_t begin = 0; begin < k; begin += kSlabK, next.step())
    tile.template multiply<kBlockK>(a, b, begin, begin + kSlabK);
  tile.store_to(c, NR);
}

class ItemKernel {
 public:
  ItemKernel(const LinearArgs& args, const PreparedRows& rows, const LinearItem& item,
             void* scratch)
      : args_(args), rows_(rows), item_(item), num_rows_(item.row_end - item.row_begin),
        num_tiles_((num_rows_ + MR - 1) / MR), padded_k_(round_up(args.k, kSlabK)),
        panel_(static_cast<float*>(scratch)), sums_(panel_ + kBlockK * NR) {
    with_weight_format(args.format, [&](auto weight) {
      using W = decltype(weight);
      slab_bytes_ = W::slab_bytes;
      expand_ = expand<W, false>;
      if constexpr (is_quantised<W> && !W::mx)
        if (args.block_scales) expand_ = expand<W, true>;
    });
  }

  static int64_t scratch_bytes(int64_t rows, int64_t panels) {
    return int64_t(sizeof(float)) * (kBlockK * NR + rows * panels * NR);
  }

  void run() {
    for (int64_t k = 0; k < padded_k_; k += kBlockK)
      for (int64_t panel = item_.panel_begin; panel < item_.panel_end; ++panel) {
        float* sums = sums_ + (panel - item_.panel_begin) * num_rows_ * NR;
        accumulate(panel, k, sums);
        if (k + kBlockK >= padded_k_)
          store_panel(args_, rows_.first + item_.row_begin, num_rows_,
                      rows_.factors + item_.row_begin, panel * NR, sums);
      }
  }

 private:
  HK_INLINE void accumulate(int64_t panel, int64_t k, float* sums) {
    const int64_t length = min(kBlockK, padded_k_ - k), slabs = length / kSlabK;
    const float* a = rows_.data + k * rows_.rows + item_.row_begin * kBlockK;
    expand_(slab(panel, k), slabs, block_scales(panel, k), panel_);
    const uint8_t* then =
        panel + 1 < item_.panel_end ? slab(panel + 1, k) : slab(item_.panel_begin, k + kBlockK);
    Prefetch next{then, then + slabs * slab_bytes_, round_up(slab_bytes_ / num_tiles_, 64)};
    // Tiles as even as can be: one of a single row would wait for its own sums.
    for (int64_t t = 0; t < num_tiles_; ++t) {
      const int64_t begin = t * num_rows_ / num_tiles_, end = (t + 1) * num_rows_ / num_tiles_;
      if (k + kBlockK >= padded_k_) prefetch_out(panel, begin, end);
      multiply_tile(end - begin, a + begin * kBlockK, panel_, length, sums + begin * NR, k == 0,
                    next);
    }
  }

  // Rows of the output lie far apart: not asked for ahead, each would be waited for.
  HK_INLINE void prefetch_out(int64_t panel, int64_t begin, int64_t end) const {
    const int64_t bytes = args_.out_dtype == DType::f32 ? 4 : 2;
    const int64_t first = rows_.first + item_.row_begin;
    const auto* out = static_cast<const char*>(args_.out) + panel * NR * bytes;
    for (int64_t r = first + begin; r < first + end; ++r)
      for (int64_t line = 0; line < NR * bytes; line += 64)
        __builtin_prefetch(out + r * args_.out_row * bytes + line, 1);
  }

  HK_INLINE const uint8_t* slab(int64_t panel, int64_t k) const {
    return args_.weight + (panel * padded_k_ + k) / kSlabK * slab_bytes_;
  }
  HK_INLINE const float* block_scales(int64_t panel, int64_t k) const {
    if (!args_.block_scales) return nullptr;
    return args_.block_scales + panel * NR / kScaleBlock * blocks_along_k() + k / kScaleBlock;
  }
  HK_INLINE int64_t blocks_along_k() const { return (args_.k + kScaleBlock - 1) / kScaleBlock; }

  const LinearArgs& args_;
  const PreparedRows& rows_;
  const LinearItem& item_;
  int64_t num_rows_, num_tiles_, padded_k_, slab_bytes_;
  float *panel_, *sums_;
  Expand expand_;
};

int64_t scratch_bytes(const LinearItem& item) {
  return ItemKernel::scratch_bytes(item.row_end - item.row_begin,
                                   item.panel_end - item.panel_begin);
}

void multiply(const LinearArgs& args, const PreparedRows& rows, const LinearItem& item,
              void* scratch) {
  ItemKernel(args, rows, item, scratch).run();
}

}  // namespace

int64_t panel_bytes(Format format, int64_t k);
void pack(const PackArgs& args, int64_t panel_begin, int64_t panel_end);
float row_max(const LinearArgs& args, int64_t row);
void prepare(const LinearArgs& args, const PreparedRows& rows, int64_t row, float tensor_max);

void multiply_skinny(const LinearArgs&, const PreparedRows&, int64_t panel_begin,
                     int64_t panel_end);
void look_up(const RowsArgs& args, int64_t i, float* row);

const LinearKernels linear_kernels{
    NR,       kSkinnyRows,     panel_bytes, pack, row_max, prepare, scratch_bytes,
    multiply, multiply_skinny, look_up,
};

}  // namespace hk::cpu::HK_ISA
