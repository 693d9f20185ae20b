// Rearranges a checkpoint's weight for the multiply: panels of NR columns of D (rows of the
// weight), each a run of slabs of 32 elements along K (weight_format.hpp). Besides source and
// result, memory holds only one slab's codes.

#include "formats/weight_format.hpp"

namespace hk::cpu::HK_ISA {
namespace {

HK_INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

// Reads a checkpoint's elements as codes; a byte of mx6 and mx4 checkpoints holds several.
template <class code>
struct Source {
  const PackArgs& args;

  HK_INLINE code stored(int64_t n, int64_t k) const {
    return static_cast<const code*>(args.codes)[n * args.code_row + k * args.code_column];
  }
  HK_INLINE code operator()(int64_t n, int64_t k) const {
    if constexpr (sizeof(code) == 1) {
      if (args.format == Format::mx4) return stored(n, k / 2) >> k % 2 * 4 & 0xf;
      if (args.format == Format::mx6e2m3 || args.format == Format::mx6e3m2) {
        const int64_t bit = 6 * k, byte = bit / 8;  // little-endian stream of 6-bit codes
        const uint32_t high = bit % 8 > 2 ? stored(n, byte + 1) : 0;
        return (stored(n, byte) | high << 8) >> bit % 8 & 0x3f;
      }
    }
    return stored(n, k);
  }
};

HK_INLINE bool is_nan_code(Format format, uint8_t code) {
  if (format == Format::f8e4m3fnuz) return code == 0x80;
  return (format == Format::f8e4m3fn || format == Format::mx8) && (code & 0x7f) == 0x7f;
}

template <class W>
struct Packer {
  using code = typename W::code;
  const PackArgs& args;
  alignas(64) code codes[NR][kSlabK];
  uint8_t scales[NR];

  // Gathers a row of codes. Elements past K become zero; NaN becomes zero, too, and is noted.
  void gather_row(int64_t n, int64_t k, code* to) const {
    const Source<code> source{args};
    const int64_t present = min(kSlabK, args.k - k);
    for (int64_t i = 0; i < present; ++i) to[i] = source(n, k + i);
    for (int64_t i = present; i < kSlabK; ++i) to[i] = 0;
    if constexpr (sizeof(code) == 1)
      for (int64_t i = 0; i < kSlabK; ++i)
        if (is_nan_code(args.format, to[i])) {
          to[i] = 0;
          args.factors[n] = __builtin_nanf("");
        }
  }

  void slab(int64_t n, int64_t k, uint8_t* out) {
    std::memset(codes, 0, sizeof(codes));
    std::memset(scales, 0, sizeof(scales));
    for (int64_t i = 0; i < min(NR, args.n - n); ++i) {
      gather_row(n + i, k, codes[i]);
      if (W::mx) scales[i] = args.scales[(n + i) * args.scale_row + k / kSlabK * args.scale_column];
    }
    pack_slab<W>(&codes[0][0], scales, out);
  }
};

}  // namespace

int64_t panel_bytes(Format format, int64_t k) {
  int64_t bytes = 0;
  with_weight_format(format, [&](auto weight) {
    bytes = (k + kSlabK - 1) / kSlabK * decltype(weight)::slab_bytes;
  });
  return bytes;
}

void pack(const PackArgs& args, int64_t panel_begin, int64_t panel_end) {
  with_weight_format(args.format, [&](auto weight) {
    using W = decltype(weight);
    Packer<W> packer{args, {}, {}};
    uint8_t* out = args.out + panel_begin * panel_bytes(args.format, args.k);
    for (int64_t panel = panel_begin; panel < panel_end; ++panel)
      for (int64_t k = 0; k < args.k; k += kSlabK, out += W::slab_bytes)
        packer.slab(panel * NR, k, out);
  });
}

}  // namespace hk::cpu::HK_ISA
