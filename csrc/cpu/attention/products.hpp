// The two products of attention, S = Q K^T and O = O * rescale + P V, in one kind of register tile.
// A kind of products P offers
//   operand                   type of queries, of weights P, and of packed keys and values
//   rows                      rows of a register tile
//   block_rows                rows whose scores are held at once
//   key_unit                  keys come in units of so many: weights past the last key are zero
//   kPacks                    whether keys and values are packed into panels
//   kScalesQuery              whether factors of the scores are part of Q; if not, S is multiplied
//   serves(args)              whether these products can compute the call
//   score(q, k, channels, s)  S of one tile of rows and one panel of NR keys
//   add(o, rescale, p, v, keys)   O of one tile of rows and one panel of NR channels
//   add_row(o, rescale, p, v, keys)   the same of one row, exactly over `keys`
// Rows of Q and O are `stride` elements apart, those of S and P kTileKeys.
#pragma once

#include "attention/item_buffers.hpp"
#include "common/amx_gemm.hpp"

namespace hk::cpu::HK_ISA {

struct FloatProducts {
  using operand = float;
  static constexpr int64_t rows = MR, block_rows = 2 * MR, key_unit = 1;
  static constexpr bool kPacks = true, kScalesQuery = true;
  static bool serves(const AttentionArgs&) { return true; }

  template <int stride>
  static HK_INLINE void score(const float* q, const float* k, int64_t channels, float* s) {
    RegisterTile<rows> tile;
    tile.zero();
    tile.template multiply<stride>(q, k, 0, channels);
    tile.store_to(s, kTileKeys);
  }
  template <int stride>
  static HK_INLINE void add(float* o, const float* rescale, const float* p, const float* v,
                            Range keys) {
    add_rows<stride, rows>(o, rescale, p, v, keys);
  }
  template <int stride>
  static HK_INLINE void add_row(float* o, const float* rescale, const float* p, const float* v,
                                Range keys) {
    add_rows<stride, 1>(o, rescale, p, v, keys);
  }

 private:
  template <int stride, int count>
  static HK_INLINE void add_rows(float* o, const float* rescale, const float* p, const float* v,
                                 Range keys) {
    RegisterTile<count> tile;
    tile.load_scaled(o, stride, rescale);
    tile.template multiply<kTileKeys>(p, v, keys.begin, keys.end);
    tile.store_to(o, stride);
  }
};

#if defined(__AVX512BF16__)

// Whether bfloat16 holds queries, keys and values exactly.
HK_INLINE bool is_exact_in_bf16(const AttentionArgs& args) {
  return args.dtype == DType::bf16 && args.kv_dtype != DType::f32 && args.kv_dtype != DType::f16;
}

// Products in bfloat16. Softmax weights are rounded to bfloat16; their sum is that of the unrounded
// weights.
struct PairProducts {
  using operand = uint16_t;
  static constexpr int64_t rows = MR, block_rows = 2 * MR, key_unit = 2;
  static constexpr bool kPacks = true, kScalesQuery = false;
  static bool serves(const AttentionArgs& args) { return is_exact_in_bf16(args); }

  template <int stride>
  static HK_INLINE void score(const uint16_t* q, const uint16_t* k, int64_t channels, float* s) {
    PairTile<rows> tile;
    tile.zero();
    tile.multiply(q, stride, k, 0, channels);
    tile.store_to(s, kTileKeys);
  }
  template <int stride>
  static HK_INLINE void add(float* o, const float* rescale, const uint16_t* p, const uint16_t* v,
                            Range keys) {
    PairTile<rows> tile;
    tile.load_scaled(o, stride, rescale);
    tile.multiply(p, kTileKeys, v, keys.begin, keys.end);
    tile.store_to(o, stride);
  }
  // Adds key by key in float32, since one key of a pair may be hidden from the row.
  template <int stride>
  static void add_row(float* o, const float* rescale, const uint16_t* p, const uint16_t* v,
                      Range keys) {
    vec sum[NV];
    for (int i = 0; i < NV; ++i) sum[i] = load(o + i * VL) * splat(*rescale);
    for (int64_t k = keys.begin; k < keys.end; ++k)
      for (int i = 0; i < NV; ++i) {
        const ivec pairs = load_pairs(v + k / 2 * 2 * NR + 2 * i * VL);
        sum[i] += splat(widen(BF16{}, p[k])) * (k % 2 ? widen_upper(pairs) : widen_lower(pairs));
      }
    for (int i = 0; i < NV; ++i) store(o + i * VL, sum[i]);
  }
};

#endif

#if defined(__AMX_BF16__)

// Products in bfloat16 by AMX's tiles, with steps of 32 along the channels and the keys.
struct TileProducts : PairProducts {
  static constexpr int64_t rows = 2 * kTileRows, block_rows = rows, key_unit = kTileK;
  static bool serves(const AttentionArgs& args) {
    return is_exact_in_bf16(args) && args.head_size % kTileK == 0;
  }

  template <int stride>
  static HK_INLINE void score(const uint16_t* q, const uint16_t* k, int64_t channels, float* s) {
    const TileSums<2> sums;
    sums.zero();
    sums.multiply(q, stride, k, 0, channels);
    sums.store_to(s, kTileKeys);
  }
  template <int stride>
  static HK_INLINE void add(float* o, const float* rescale, const uint16_t* p, const uint16_t* v,
                            Range keys) {
    for (int64_t r = 0; r < rows; ++r)
      if (rescale[r] != 1.0f)
        for (int64_t c = 0; c < NR; c += VL)
          store(o + r * stride + c, load(o + r * stride + c) * splat(rescale[r]));
    const TileSums<2> sums;
    sums.load_from(o, stride);
    sums.multiply(p, kTileKeys, v, keys.begin, keys.end);
    sums.store_to(o, stride);
  }
};

#endif

}  // namespace hk::cpu::HK_ISA
