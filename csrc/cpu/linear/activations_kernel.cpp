// Prepares rows of activations for the multiply: widens them to float32. If the weight asks for it,
// rotates them block by block and rounds them to a quantised format's values. Rounding happens in
// place while the row is in the cache, or on the way to whole numbers.

#include "formats/rotate.hpp"
#include "linear/integer_rows.hpp"

namespace hk::cpu::HK_ISA {
namespace {

HK_INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
HK_INLINE int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

// Loads VL neighbours and widens them.
HK_INLINE vec load_bf16(const uint16_t* from) {
  typedef uint16_t words __attribute__((vector_size(VL * 2)));
  words x;
  std::memcpy(&x, from, sizeof(x));
  return float_of(__builtin_convertvector(x, ivec) << 16);
}

// max_abs for bfloat16. Bits of magnitudes have the magnitudes' order, with NaN above all numbers.
HK_INLINE float max_abs_bf16(const uint16_t* x, int64_t count) {
  constexpr int kLanes = 2 * VL;
  halves top{};
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    halves size;
    std::memcpy(&size, x + k, sizeof(size));
    size &= 0x7fff;
    top = size > top ? size : top;
  }
  uint16_t largest = 0;
  for (int i = 0; i < kLanes; ++i) largest = top[i] > largest ? top[i] : largest;
  for (; k < count; ++k) {
    const uint16_t size = x[k] & 0x7fff;
    largest = size > largest ? size : largest;
  }
  return widen(BF16{}, largest);
}

// Widens `count` elements and adds zeros up to `padded`. Both are multiples of eight.
template <class T>
HK_INLINE void widen_run(const typename T::type* from, float* to, int64_t count, int64_t padded) {
  int64_t begin = 0;
  if constexpr (std::is_same_v<T, BF16>)
    for (; begin + VL <= count; begin += VL) store(to + begin, load_bf16(from + begin));
  for (int64_t k = begin; k < count; k += 8) *reinterpret_cast<f8_u*>(to + k) = load8<T>(from + k);
  for (int64_t k = count; k < padded; k += 8) *reinterpret_cast<f8_u*>(to + k) = f8{};
}

// Widens the block of kBlockK elements of a row of X that begins at k.
HK_INLINE void widen_block(const LinearArgs& args, int64_t row, int64_t k, float* to) {
  const int64_t count = min(kBlockK, args.k - k);
  with_format(args.x_dtype, [&](auto format) {
    using T = decltype(format);
    const auto* x = static_cast<const typename T::type*>(args.x) + row * args.x_row;
    widen_run<T>(x + k, to, count, round_up(count, kSlabK));
  });
  if (args.rotation) rotate(to, count, args.rotation);
}

// Scale that all elements of a row share; the row's sums are multiplied by it.
template <class Small>
float row_scale(const LinearArgs& args, const float* to, int64_t stride, float tensor_max) {
  if (args.activations == Activations::tensor)
    return args.input_scale ? *args.input_scale : fp8_scale<Small>(tensor_max);
  float top = 0.0f;
  for (int64_t k = 0; k < args.k; k += kBlockK, to += stride)
    top = larger(top, max_abs(to, min(kBlockK, round_up(args.k - k, kSlabK))));
  return fp8_scale<Small>(top);
}

// Rounds blocks of kScaleBlock elements in place; values include their block's scale.
template <class Small>
HK_INLINE void round_scaled_blocks(float* x, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kScaleBlock) {
    const int64_t length = min(kScaleBlock, count - begin);
    const float scale = fp8_scale<Small>(max_abs(x + begin, length));
    round_fp8<Small>(x + begin, length, Descale{scale, true});
    for (int64_t i = begin; i < begin + length; i += VL) store(x + i, load(x + i) * splat(scale));
  }
}

// Rounds a widened row in place; returns the row's factor.
template <class Small>
float round_row(const LinearArgs& args, float* to, int64_t stride, float tensor_max) {
  const bool one_scale =
      args.activations == Activations::token || args.activations == Activations::tensor;
  const float scale = one_scale ? row_scale<Small>(args, to, stride, tensor_max) : 1.0f;
  for (int64_t k = 0; k < args.k; k += kBlockK, to += stride) {
    const int64_t length = min(kBlockK, round_up(args.k - k, kSlabK));
    if (one_scale)
      round_fp8<Small>(to, length, Descale{scale, false});
    else if (args.activations == Activations::token_block)
      round_scaled_blocks<Small>(to, length);
    else
      round_mx<Small>(to, length);
  }
  return scale;
}

// Calls f(s, x) for each slab of a row, with its 32 elements widened.
template <class F>
HK_INLINE void for_each_slab(const LinearArgs& args, int64_t row, F f) {
  alignas(64) float block[kBlockK];
  for (int64_t k = 0; k < args.k; k += kBlockK) {
    widen_block(args, row, k, block);
    for (int64_t i = 0; i < min(kBlockK, args.k - k); i += kSlabK) f((k + i) / kSlabK, block + i);
  }
}

void prepare_pairs(const LinearArgs& args, const PreparedRows& rows, int64_t row) {
  constexpr int64_t slabs = kBlockK / kSlabK;
  with_mx_formats(args, [&](auto weight, auto small) {
    using W = decltype(weight);
    using X = decltype(small);
    if constexpr (has_pairs<W, X>())
      for_each_slab(args, rows.first + row, [&](int64_t s, const float* x) {
        float* block = rows.data + (s / slabs * rows.rows + row) * kBlockK;
        auto& slab = reinterpret_cast<IntegerBlock*>(block)->slabs[s % slabs];
        round_to_pairs<typename W::small, X>(x, slab);
      });
  });
}

// Rounds a block of float32 values in place to values that bfloat16 holds; a float32 scale is not
// multiplied in.
template <class Small>
HK_INLINE void round_block(const LinearArgs& args, float* x, int64_t count, float row_scale,
                           float* block_scale) {
  if (args.activations == Activations::mx) return round_mx<Small>(x, count);
  const bool divide = args.activations == Activations::token_block;
  if (divide) *block_scale = fp8_scale<Small>(max_abs(x, count));
  round_fp8<Small>(x, count, Descale{divide ? *block_scale : row_scale, divide});
}

}  // namespace

// Largest absolute value of a row at the time of rounding, after any rotation.
float row_max(const LinearArgs& args, int64_t row) {
  if (args.x_dtype == DType::bf16 && !args.rotation)
    return max_abs_bf16(static_cast<const uint16_t*>(args.x) + row * args.x_row, args.k);
  float top = 0.0f;
  alignas(64) float x[kBlockK];
  for (int64_t k = 0; k < args.k; k += kBlockK) {
    widen_block(args, row, k, x);
    top = larger(top, max_abs(x, min(kBlockK, round_up(args.k - k, kSlabK))));
  }
  return top;
}

namespace {

template <class Small>
float row_scale_of(const LinearArgs& args, int64_t row, float tensor_max) {
  if (args.activations == Activations::tensor)
    return args.input_scale ? *args.input_scale : fp8_scale<Small>(tensor_max);
  if (args.activations == Activations::token) return fp8_scale<Small>(row_max(args, row));
  return 1.0f;
}

// Stores a row as bfloat16, in blocks of kBlockK elements; f(k, x) may round the values first.
template <class F>
HK_INLINE void narrow_blocks(const LinearArgs& args, const PreparedRows& rows, int64_t row, F f) {
  auto* out = reinterpret_cast<uint16_t*>(rows.data);
  const int64_t block = pair_block(args.k);
  alignas(64) float x[kBlockK];
  for (int64_t k = 0; k < args.k; k += kBlockK) {
    widen_block(args, rows.first + row, k, x);
    const int64_t count = min(kBlockK, round_up(args.k - k, kSlabK));
    f(k, x, count);
    uint16_t* to = out + (k / block * rows.rows + row) * block + k % block;
    for (int64_t i = 0; i < count; i += VL) store_run<BF16>(to + i, load(x + i));  // exact
  }
}

// Copies a row that is bfloat16 already.
HK_INLINE void copy_bf16(const LinearArgs& args, const PreparedRows& rows, int64_t row) {
  const auto* x = static_cast<const uint16_t*>(args.x) + (rows.first + row) * args.x_row;
  const int64_t block = pair_block(args.k);
  uint16_t* to = reinterpret_cast<uint16_t*>(rows.data) + row * block;
  for (int64_t k = 0; k < args.k; k += block, to += rows.rows * block) {
    const int64_t count = min(block, args.k - k);
    std::memcpy(to, x + k, sizeof(uint16_t) * count);
    std::memset(to + count, 0, sizeof(uint16_t) * (round_up(count, kSlabK) - count));
  }
}

void prepare_bf16(const LinearArgs& args, const PreparedRows& rows, int64_t row, float tensor_max) {
  if (args.activations == Activations::none) return copy_bf16(args, rows, row);
  with_small_float(args.x_format, [&](auto small) {
    using Small = decltype(small);
    const float scale = row_scale_of<Small>(args, rows.first + row, tensor_max);
    rows.factors[row] = scale;
    narrow_blocks(args, rows, row, [&](int64_t k, float* x, int64_t count) {
      const int64_t block = k / kScaleBlock * rows.rows + row;
      round_block<Small>(args, x, count, scale, rows.block_factors + block);
    });
  });
}

void prepare_whole(const LinearArgs& args, const PreparedRows& rows, int64_t row) {
  with_mx_formats(args, [&](auto weight, auto small) {
    using W = decltype(weight);
    using X = decltype(small);
    if constexpr (has_slabs<W, X, QuadSlab>())
      for_each_slab(args, rows.first + row, [&](int64_t s, const float* x) {
        round_to_quads<typename W::small, X>(x, *slab_of<QuadSlab>(rows, row, s));
      });
    if constexpr (has_slabs<W, X, WordSlab>())
      for_each_slab(args, rows.first + row, [&](int64_t s, const float* x) {
        round_to_words<typename W::small, X>(x, *slab_of<WordSlab>(rows, row, s));
      });
  });
}

}  // namespace

void prepare(const LinearArgs& args, const PreparedRows& rows, int64_t row, float tensor_max) {
  rows.factors[row] = 1.0f;
  const RowForm form = row_form(args, rows.rows);
  if (form == RowForm::pairs) return prepare_pairs(args, rows, row);
  if (form == RowForm::bf16) return prepare_bf16(args, rows, row, tensor_max);
  if (form != RowForm::floats) return prepare_whole(args, rows, row);
  float* to = rows.data + row * kBlockK;
  const int64_t stride = rows.rows * kBlockK;
  for (int64_t k = 0; k < args.k; k += kBlockK)
    widen_block(args, rows.first + row, k, to + k / kBlockK * stride);
  if (args.activations != Activations::none)
    with_small_float(args.x_format, [&](auto small) {
      rows.factors[row] = round_row<decltype(small)>(args, to, stride, tensor_max);
    });
}

}  // namespace hk::cpu::HK_ISA
