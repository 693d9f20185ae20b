// Arguments of the linear operator, of packing and of looking up rows: plain data that the bindings
// fill and kernels read.
#pragma once

#include <cstdint>

#include "common/dtype.hpp"

namespace hk::cpu {

// Formats of a packed weight's elements; hk_backend.terms.weight_format explains the names.
enum class Format : int { f32, f16, bf16, f8e4m3fn, f8e4m3fnuz, mx8, mx6e2m3, mx6e3m2, mx4 };

// Ways to round activations before the multiply; their elements are those of a Format.
enum class Activations : int { none, token, tensor, token_block, mx };

constexpr int64_t kSlabK = 32;        // elements along K that are packed together, an mx block
constexpr int64_t kScaleBlock = 128;  // rows and columns under one fp8 block scale
constexpr int64_t kBlockK = 128;      // elements along K that a large multiply takes at a time

constexpr int64_t kMostPairBlock = 1536;  // most elements taken at a time in bfloat16

constexpr bool is_mx(Format f) { return f >= Format::mx8; }
constexpr bool is_fp8(Format f) { return f == Format::f8e4m3fn || f == Format::f8e4m3fnuz; }

// Arguments of D = X W^T (+ bias): X [m, k], W [n, k] packed, D [m, n]. Rows have strides in
// elements; columns are neighbours.
//   D[i, j] = sum_k X[i, k] W[j, k] * row_factor[i] * factors[j] + bias[j], rounded once
struct LinearArgs {
  const void* x;
  int64_t x_row;
  DType x_dtype;
  const uint8_t* weight;      // panels of NR columns, slabs of kSlabK along K: weight_format.hpp
  const float* factors;       // [n] or null
  const float* block_scales;  // [ceil(n / 128), ceil(k / 128)] or null
  const float* input_scale;   // [1] or null: the scale of Activations::tensor, if static
  const void* bias;           // [n] or null
  DType bias_dtype;
  void* out;
  int64_t out_row;
  DType out_dtype;
  int64_t m, n, k;
  Format format;
  Activations activations;
  Format x_format;    // the format x is rounded to; mx only: may differ from the weight's
  int64_t rotation;   // neighbours along K rotated together first: 32, 64 or 128; 0: none
  bool dot_products;  // whether AVX-512 uses dot products of bytes and words (VNNI)
};

// Activations in the form that the multiply reads: float32 (or whole numbers in place of the
// floats, see integer_rows.hpp), rotated and rounded as `LinearArgs` says. K is padded with zeros
// to a multiple of kSlabK. As float32, element (row, k) is at
//   (k / kBlockK) * rows * kBlockK + row * kBlockK + k % kBlockK
// so that the rows of one block of K are neighbours. bfloat16 has the same order, in blocks of
// pair_block(k) elements (row_form.hpp).
// Row 0 is row `first` of X. A tile may read `kReadPast` more rows behind `data`. Rows that are
// `in_place` are read from X itself.
struct PreparedRows {
  static constexpr int64_t kReadPast = 15;
  float* data;
  float* factors;        // [rows]: factors of the rows' sums
  float* block_factors;  // [ceil(k / 128)][rows] or null: factors of the sums over each block
  int64_t first, rows;
  bool in_place;
};

// A share of the large multiply: some prepared rows times some panels of columns.
struct LinearItem {
  int64_t row_begin, row_end, panel_begin, panel_end;
};

// Arguments of packing: a checkpoint's tensors. Strides count elements of `codes` as stored, which
// are bytes for the packed mx6 and mx4 codes (24 and 16 bytes per 32 elements).
struct PackArgs {
  const void* codes;
  int64_t code_row, code_column;
  const uint8_t* scales;  // mx: e8m0 codes [n, k / 32]
  int64_t scale_row, scale_column;
  uint8_t* out;
  float* factors;  // [n], quantised formats: becomes NaN if the column has a NaN code
  int64_t n, k;
  Format format;
};

// Arguments of a look-up of rows of a packed weight into out [count, k], contiguous; k % 8 == 0.
struct RowsArgs {
  const int64_t* rows;  // each in [0, n)
  int64_t count;
  const uint8_t* weight;
  const float* factors;       // the same as in LinearArgs
  const float* block_scales;  // the same as in LinearArgs
  void* out;
  DType out_dtype;
  int64_t n, k;
  Format format;
  int64_t rotation;  // the weight's rotation, which is undone
};

// The linear operator's functions of one instruction set. `scratch` is private to a thread.
struct LinearKernels {
  int64_t panel_columns;                      // NR
  int64_t (*skinny_rows)(const LinearArgs&);  // rows up to which multiply_skinny is faster
  // Whether the multiply reads this number of rows from X itself, without preparation.
  bool (*takes_in_place)(const LinearArgs&, int64_t rows);
  int64_t (*panel_bytes)(Format, int64_t k);
  void (*pack)(const PackArgs&, int64_t panel_begin, int64_t panel_end);
  // Largest absolute value of a row, for Activations::tensor; NaN if the row holds NaN.
  float (*row_max)(const LinearArgs&, int64_t row);
  // Prepares one row of `PreparedRows`; `tensor_max` is the largest row_max.
  void (*prepare)(const LinearArgs&, const PreparedRows&, int64_t row, float tensor_max);
  int64_t (*scratch_bytes)(const LinearItem&);
  void (*multiply)(const LinearArgs&, const PreparedRows&, const LinearItem&, void* scratch);
  // Multiplies all prepared rows, at most skinny_rows, with some panels.
  void (*multiply_skinny)(const LinearArgs&, const PreparedRows&, int64_t panel_begin,
                          int64_t panel_end);
  // Looks up the i-th of the rows; `row`: room for k floats, padded to whole slabs.
  void (*look_up)(const RowsArgs&, int64_t i, float* row);
};

}  // namespace hk::cpu
