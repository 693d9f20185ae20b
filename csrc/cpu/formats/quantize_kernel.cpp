// The quantising operators, for one row at a time: runs of it are widened to float32, rounded and
// packed in the first-level cache.

#include "formats/quantize_args.hpp"
#include "formats/rotate.hpp"

namespace hk::cpu::HK_ISA {
namespace {

// Number of elements taken at a time; groups and rotated blocks are whole pieces, or fill one.
constexpr int64_t kPiece = 128;

HK_INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

// Widens `count` elements and adds zeros up to a multiple of kRun, which it returns.
HK_INLINE int64_t widen_piece(const QuantizeArgs& args, int64_t row, int64_t k, int64_t count,
                              float* to) {
  const int64_t padded = (count + kRun - 1) / kRun * kRun;
  with_format(args.x_dtype, [&](auto format) {
    using T = decltype(format);
    const auto* from = static_cast<const typename T::type*>(args.x) + row * args.x_row + k;
    const int64_t whole = count / 8 * 8;
    for (int64_t i = 0; i < whole; i += 8) *reinterpret_cast<f8_u*>(to + i) = load8<T>(from + i);
    for (int64_t i = whole; i < count; ++i) to[i] = widen(T{}, from[i]);
    for (int64_t i = count; i < padded; ++i) to[i] = 0.0f;
  });
  return padded;
}

// Rounds a run of values, in units of their scale, to one code per byte.
template <class Small, class Unscale>
HK_INLINE void encode_run(const float* x, float limit, Unscale unscale, uint8_t* codes) {
  typedef uint8_t code_bytes __attribute__((vector_size(VL)));
  for (int64_t i = 0; i < kRun; i += VL) {
    const auto rounded = round_code<Small>(unscale(load(x + i)), limit);
    const auto narrow = __builtin_convertvector(rounded, code_bytes);
    std::memcpy(codes + i, &narrow, sizeof(narrow));
  }
}

// Packs a run of codes into a stream of `bits` bits each, lowest bit first.
template <int bits>
HK_INLINE void pack_run(const uint8_t* codes, uint8_t* out) {
  for (int64_t i = 0; i < kRun; i += 8, out += bits) {
    uint64_t stream = 0;
    for (int64_t j = 0; j < 8; ++j) stream |= uint64_t(codes[i + j]) << bits * j;
    std::memcpy(out, &stream, bits);
  }
}

template <class Small>
void fp8_row(const QuantizeArgs& args, int64_t row) {
  alignas(64) float x[kPiece];
  uint8_t codes[kPiece];
  const int64_t groups = (args.k + args.group_columns - 1) / args.group_columns;
  const float* scales = args.scales + row / args.group_rows * groups;
  for (int64_t k = 0; k < args.k; k += kPiece) {
    const int64_t count = min(kPiece, args.k - k);
    const int64_t padded = widen_piece(args, row, k, count, x);
    const Descale descale{scales[k / args.group_columns], args.divide};
    for (int64_t i = 0; i < padded; i += kRun)
      encode_run<Small>(x + i, kFp8Limit<Small>, descale, codes + i);
    std::memcpy(args.codes + row * args.k + k, codes, size_t(count));
  }
}

// Quantises a run as one block: writes its codes, returns the scale's code.
template <class Small>
HK_INLINE uint8_t encode_block(const float* x, bool round_scale_even, uint8_t* out) {
  uint8_t codes[kRun];
  const uint32_t scale = mx_scale_code<Small>(max_abs(x, kRun), round_scale_even);
  if (scale == kBrokenBlock) {
    std::memset(codes, 0, kRun);
  } else {
    const vec inverse = splat(mx_inverse_scale(scale));
    encode_run<Small>(x, Small::max(), [&](vec y) { return y * inverse; }, codes);
  }
  pack_run<Small::bits>(codes, out);
  return uint8_t(scale);
}

template <class Small>
void mx_row(const QuantizeArgs& args, int64_t row) {
  alignas(64) float x[kPiece];
  uint8_t* codes = args.codes + row * args.k / 8 * Small::bits;
  uint8_t* scales = args.scale_codes + row * args.k / kRun;
  for (int64_t k = 0; k < args.k; k += kPiece) {
    const int64_t count = widen_piece(args, row, k, min(kPiece, args.k - k), x);
    if (args.rotation) rotate(x, count, args.rotation);
    for (int64_t i = 0; i < count; i += kRun, codes += kRun / 8 * Small::bits)
      *scales++ = encode_block<Small>(x + i, args.round_scale_even, codes);
  }
}

void row_maxima(const QuantizeArgs& args, int64_t row, float* maxima) {
  alignas(64) float x[kPiece];
  for (int64_t begin = 0; begin < args.k; begin += args.group_columns) {
    const int64_t end = min(args.k, begin + args.group_columns);
    float top = 0.0f;
    for (int64_t k = begin; k < end; k += kPiece)
      top = larger(top, max_abs(x, widen_piece(args, row, k, min(kPiece, end - k), x)));
    *maxima++ = top;
  }
}

float scale_of(Format format, float top) {
  float scale = 0.0f;
  with_small_float(format, [&](auto small) { scale = fp8_scale<decltype(small)>(top); });
  return scale;
}

void quantize_row(const QuantizeArgs& args, int64_t row) {
  with_small_float(args.format, [&](auto small) {
    using Small = decltype(small);
    if constexpr (Small::nan != NanCode::none)
      if (!is_mx(args.format)) return fp8_row<Small>(args, row);
    mx_row<Small>(args, row);
  });
}

}  // namespace

extern const QuantizeKernels quantize_kernels;
const QuantizeKernels quantize_kernels{row_maxima, scale_of, quantize_row};

}  // namespace hk::cpu::HK_ISA
