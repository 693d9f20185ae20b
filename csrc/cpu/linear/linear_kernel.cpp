// The multiply of many rows with a packed weight, for one work item: some rows times some panels.
//
//   for each block of K:                        many_floats.hpp, many_bf16.hpp, many_integers.hpp
//     for each panel of NR columns:
//       expand the panel's slabs to float32 (bfloat16, whole numbers), into L1
//       for each register tile of rows:  C += A B                   A in L2, C float32 in L2
//         after the last block: scale, add the bias, round once, store
//
// Choices. Multiplying costs rows * NR / VL / 2 clocks per element along K, and expanding about
// three, which is little: a hundredth at 128 rows. So every format runs at the rate of float32 or
// faster, and no copy of the weight is larger than one panel's block.

#include "linear/linear_store.hpp"
#include "linear/many_bf16.hpp"
#include "linear/many_floats.hpp"
#include "linear/many_integers.hpp"

namespace hk::cpu::HK_ISA {
namespace {

HK_INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
HK_INLINE int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

template <class Panel>
class ItemKernel {
 public:
  ItemKernel(const LinearArgs& args, const PreparedRows& rows, const LinearItem& item,
             void* scratch)
      : args_(args), rows_(rows), item_(item), num_rows_(item.row_end - item.row_begin),
        panel_rows_(round_up(num_rows_, Panel::row_unit)),
        num_tiles_((num_rows_ + Panel::tile_rows - 1) / Panel::tile_rows),
        slabs_((args.k + kSlabK - 1) / kSlabK), expanded_(static_cast<uint8_t*>(scratch)),
        sums_(reinterpret_cast<float*>(expanded_ + Panel::bytes)), panel_(args) {
    with_weight_format(args.format,
                       [&](auto weight) { slab_bytes_ = decltype(weight)::slab_bytes; });
  }

  void run() {
    for (int64_t s = 0; s < slabs_; s += panel_.slabs())
      for (int64_t panel = item_.panel_begin; panel < item_.panel_end; ++panel)
        accumulate(panel, s);
  }

 private:
  HK_INLINE bool is_last(int64_t s) const { return s + panel_.slabs() >= slabs_; }

  // Address of a tile's sums between blocks of K; with a single block, all tiles share one in L1.
  HK_INLINE float* sums_of(int64_t panel, int64_t row) const {
    if (slabs_ <= panel_.slabs()) return sums_;
    return sums_ + ((panel - item_.panel_begin) * panel_rows_ + row) * NR;
  }

  HK_INLINE void accumulate(int64_t panel, int64_t s) {
    const int64_t slabs = min(panel_.slabs(), slabs_ - s);
    const void* expanded = panel_.expand(slab(panel, s), slabs, block_scales(panel, s), expanded_);
    const uint8_t* then =
        panel + 1 < item_.panel_end ? slab(panel + 1, s) : slab(item_.panel_begin, s + slabs);
    // A weight that is read in place and only once is streamed: a block ahead would be too far.
    const bool streams = expanded == slab(panel, s) && num_tiles_ == 1;
    if (streams) then = slab(panel, s) + 2 * kPrefetchAhead;
    Prefetch next{then, then + slabs * slab_bytes_, round_up(slab_bytes_ / num_tiles_, 64),
                  streams};
    const Columns columns(args_, panel * NR);
    for (int64_t t = 0; t < num_tiles_; ++t) {
      const int64_t begin = tile_begin(t), rows = tile_begin(t + 1) - begin;
      const int64_t row = item_.row_begin + begin;
      float* sums = sums_of(panel, begin);
      if (is_last(s)) prefetch_out(panel, begin, begin + rows);
      panel_.multiply({rows_, row, rows, s, slabs, expanded, sums, next});
      if (is_last(s))
        store_rows(args_, columns, rows_.first + row, rows, rows_.factors + row, sums);
    }
  }

  // First row of a tile. Tiles are even, since a tile of a single row would wait for its own sums.
  HK_INLINE int64_t tile_begin(int64_t t) const {
    if constexpr (Panel::row_unit == 1) return t * num_rows_ / num_tiles_;
    return min(t * Panel::tile_rows, num_rows_);
  }

  // Prefetches rows of the output, which lie far apart: without it, each store would wait.
  HK_INLINE void prefetch_out(int64_t panel, int64_t begin, int64_t end) const {
    const int64_t bytes = args_.out_dtype == DType::f32 ? 4 : 2;
    const int64_t first = rows_.first + item_.row_begin;
    const auto* out = static_cast<const char*>(args_.out) + panel * NR * bytes;
    for (int64_t r = first + begin; r < first + end; ++r)
      for (int64_t line = 0; line < NR * bytes; line += 64)
        __builtin_prefetch(out + r * args_.out_row * bytes + line, 1);
  }

  HK_INLINE const uint8_t* slab(int64_t panel, int64_t s) const {
    return args_.weight + (panel * slabs_ + s) * slab_bytes_;
  }
  HK_INLINE const float* block_scales(int64_t panel, int64_t s) const {
    if (!args_.block_scales) return nullptr;
    const int64_t blocks = (args_.k + kScaleBlock - 1) / kScaleBlock;
    return args_.block_scales + panel * NR / kScaleBlock * blocks + s * kSlabK / kScaleBlock;
  }

  const LinearArgs& args_;
  const PreparedRows& rows_;
  const LinearItem& item_;
  int64_t num_rows_, panel_rows_, num_tiles_, slabs_, slab_bytes_;
  uint8_t* expanded_;
  float* sums_;
  Panel panel_;
};

void multiply_bf16(const LinearArgs& args, const PreparedRows& rows, const LinearItem& item,
                   void* scratch) {
  const Tiles tiles;
  ItemKernel<PairPanel>(args, rows, item, scratch).run();
}

int64_t scratch_bytes(const LinearItem& item) {
  constexpr int64_t expanded =
      max(max(FloatPanel::bytes, PairPanel::bytes), max(QuadPanel::bytes, WordPanel::bytes));
  const int64_t rows = round_up(item.row_end - item.row_begin, PairPanel::row_unit);
  const int64_t sums = rows * (item.panel_end - item.panel_begin) * NR;
  return expanded + int64_t(sizeof(float)) * sums;
}

void multiply(const LinearArgs& args, const PreparedRows& rows, const LinearItem& item,
              void* scratch) {
  const RowForm form = row_form(args, rows.rows);
  if (form == RowForm::quads)
    ItemKernel<QuadPanel>(args, rows, item, scratch).run();
  else if (form == RowForm::words)
    ItemKernel<WordPanel>(args, rows, item, scratch).run();
  else if (form == RowForm::bf16)
    multiply_bf16(args, rows, item, scratch);
  else
    ItemKernel<FloatPanel>(args, rows, item, scratch).run();
}

}  // namespace

int64_t panel_bytes(Format format, int64_t k);
void pack(const PackArgs& args, int64_t panel_begin, int64_t panel_end);
float row_max(const LinearArgs& args, int64_t row);
void prepare(const LinearArgs& args, const PreparedRows& rows, int64_t row, float tensor_max);

void multiply_skinny(const LinearArgs&, const PreparedRows&, int64_t panel_begin,
                     int64_t panel_end);
void look_up(const RowsArgs& args, int64_t i, float* row);

extern const LinearKernels linear_kernels;
const LinearKernels linear_kernels{
    NR,      skinny_rows,   takes_in_place, panel_bytes,     pack,    row_max,
    prepare, scratch_bytes, multiply,       multiply_skinny, look_up,
};

}  // namespace hk::cpu::HK_ISA
