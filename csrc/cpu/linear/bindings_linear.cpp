// hk_backend._cpu, the linear operator: Python functions of pointers, dtypes, sizes and strides.

#include "linear/bindings_linear.hpp"

#include <pybind11/stl.h>

#include <array>

#include "bounds/bounds.hpp"
#include "common/instruction_sets.hpp"
#include "linear/linear_dispatch.hpp"
#include "formats/quantize_dispatch.hpp"

namespace py = pybind11;

namespace hk::cpu {
namespace {

template <class T>
T* pointer(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

void bind_enums(py::module_& module) {
  // hk_backend.terms.weight_format defines the names.
  py::enum_<Format>(module, "Format")
      .value("fp32", Format::f32)
      .value("fp16", Format::f16)
      .value("bf16", Format::bf16)
      .value("fp8_e4m3fn", Format::f8e4m3fn)
      .value("fp8_e4m3fnuz", Format::f8e4m3fnuz)
      .value("mxfp8", Format::mx8)
      .value("mxfp6_e2m3", Format::mx6e2m3)
      .value("mxfp6_e3m2", Format::mx6e3m2)
      .value("mxfp4", Format::mx4);
  py::enum_<Activations>(module, "Activations")
      .value("none", Activations::none)
      .value("token", Activations::token)
      .value("tensor", Activations::tensor)
      .value("token_block", Activations::token_block)
      .value("mx", Activations::mx);
}

void bind_pack(py::module_& module) {
  module.def("packed_bytes", &packed_bytes, "Bytes of a packed weight [n, k].");
  module.def(
      "pack_weight",
      [](const std::string& isa, int threads, Format format, const std::array<int64_t, 2>& sizes,
         uint64_t codes, const std::array<int64_t, 2>& code_strides, uint64_t scales,
         const std::array<int64_t, 2>& scale_strides, uint64_t out, uint64_t factors) {
        const PackArgs args{.codes = pointer<void>(codes),
                            .code_row = code_strides[0],
                            .code_column = code_strides[1],
                            .scales = pointer<const uint8_t>(scales),
                            .scale_row = scale_strides[0],
                            .scale_column = scale_strides[1],
                            .out = pointer<uint8_t>(out),
                            .factors = pointer<float>(factors),
                            .n = sizes[0],
                            .k = sizes[1],
                            .format = format};
        py::gil_scoped_release release;
        pack_weight(isa, args, threads);
      },
      R"(Pack a checkpoint's weight. Addresses are integers (0: absent), strides count elements as
stored. sizes: n, k. scales: the e8m0 codes of an mx format. factors: float32 [n], where NaN is
written for columns that hold a NaN code; needed by fp8 and mxfp8.)");
}

void bind_linear(py::module_& module) {
  module.def(
      "linear",
      [](const std::string& isa, int threads, Format format, Activations activations,
         Format x_format, int64_t rotation, const std::array<int64_t, 3>& sizes, uint64_t x,
         DType x_dtype, int64_t x_row, uint64_t weight, uint64_t factors, uint64_t block_scales,
         uint64_t input_scale, uint64_t bias, DType bias_dtype, uint64_t out, DType out_dtype,
         int64_t out_row) {
        const LinearArgs args{.x = pointer<void>(x),
                              .x_row = x_row,
                              .x_dtype = x_dtype,
                              .weight = pointer<const uint8_t>(weight),
                              .factors = pointer<const float>(factors),
                              .block_scales = pointer<const float>(block_scales),
                              .input_scale = pointer<const float>(input_scale),
                              .bias = pointer<void>(bias),
                              .bias_dtype = bias_dtype,
                              .out = pointer<void>(out),
                              .out_row = out_row,
                              .out_dtype = out_dtype,
                              .m = sizes[0],
                              .n = sizes[1],
                              .k = sizes[2],
                              .format = format,
                              .activations = activations,
                              .x_format = x_format,
                              .rotation = rotation,
                              .dot_products = has_dot_products()};
        py::gil_scoped_release release;
        linear(isa, args, threads);
      },
      R"(x [m, k] times a packed weight [n, k], transposed, into out [m, n]. Addresses are integers
(0: absent), strides count elements; columns of x and out are neighbours. x_format: the format that
x is rounded to, the weight's or another mx format; not read if x is not rounded. rotation:
neighbours along K that are rotated before they are rounded, a divisor of k: 32, 64, 128, or 0.
sizes: m, n, k.)");
  module.def(
      "use_dot_products", &use_dot_products,
      "Whether AVX-512 multiplies integers with VNNI where the processor has it; whether it did.");
}

void bind_rows(py::module_& module) {
  module.def(
      "look_up",
      [](const std::string& isa, int threads, Format format, int64_t rotation,
         const std::array<int64_t, 3>& sizes, uint64_t rows, uint64_t weight, uint64_t factors,
         uint64_t block_scales, uint64_t out, DType out_dtype) {
        const RowsArgs args{.rows = pointer<const int64_t>(rows),
                            .count = sizes[0],
                            .weight = pointer<const uint8_t>(weight),
                            .factors = pointer<const float>(factors),
                            .block_scales = pointer<const float>(block_scales),
                            .out = pointer<void>(out),
                            .out_dtype = out_dtype,
                            .n = sizes[1],
                            .k = sizes[2],
                            .format = format,
                            .rotation = rotation};
        for (int64_t i = 0; i < args.count; ++i)
          if (args.rows[i] < 0 || args.rows[i] >= args.n)
            throw py::index_error("ids: " + std::to_string(args.rows[i]) +
                                  " is not valid: expected 0 to " + std::to_string(args.n - 1));
        py::gil_scoped_release release;
        look_up(isa, args, threads);
      },
      R"(Rows [m, k] of a packed weight [n, k], their rotation undone, contiguous. Addresses are
integers (0: absent). rows: int64 [m], each in [0, n). sizes: m, n, k.)");
}

void bind_quantisers(py::module_& module) {
  module.def(
      "quantize_fp8",
      [](const std::string& isa, int threads, Format format, const std::array<int64_t, 2>& sizes,
         uint64_t x, DType x_dtype, int64_t x_row, const std::array<int64_t, 2>& group, bool divide,
         bool dynamic, uint64_t codes, uint64_t scales) {
        const QuantizeArgs args{.x = pointer<void>(x),
                                .x_row = x_row,
                                .x_dtype = x_dtype,
                                .m = sizes[0],
                                .k = sizes[1],
                                .format = format,
                                .group_rows = group[0],
                                .group_columns = group[1],
                                .divide = divide,
                                .rotation = 0,
                                .round_scale_even = false,
                                .codes = pointer<uint8_t>(codes),
                                .scales = pointer<float>(scales),
                                .scale_codes = nullptr};
        py::gil_scoped_release release;
        quantize_fp8(isa, args, dynamic, threads);
      },
      R"(x [m, k] to fp8 codes [m, k], contiguous, and a float32 scale per group (rows, columns).
dynamic: scales are written, else they are read. divide: elements by scales; else elements are
multiplied by 1 / scale. sizes: m, k. Columns of x are neighbours.)");
  module.def(
      "quantize_mx",
      [](const std::string& isa, int threads, Format format, const std::array<int64_t, 2>& sizes,
         uint64_t x, DType x_dtype, int64_t x_row, int64_t rotation, bool round_scale_even,
         uint64_t codes, uint64_t scales) {
        const QuantizeArgs args{.x = pointer<void>(x),
                                .x_row = x_row,
                                .x_dtype = x_dtype,
                                .m = sizes[0],
                                .k = sizes[1],
                                .format = format,
                                .group_rows = 1,
                                .group_columns = kSlabK,
                                .divide = false,
                                .rotation = rotation,
                                .round_scale_even = round_scale_even,
                                .codes = pointer<uint8_t>(codes),
                                .scales = nullptr,
                                .scale_codes = pointer<uint8_t>(scales)};
        py::gil_scoped_release release;
        quantize_mx(isa, args, threads);
      },
      R"(x [m, k] to mx codes [m, k * bits / 8] and scale codes [m, k / 32], contiguous.
rotation: neighbours that are rotated first, a divisor of k: 32, 64, 128, or 0. round_scale_even:
the largest value of a block is rounded to the element's mantissa before its exponent is taken.
sizes: m, k. Columns of x are neighbours.)");
}

void bind_bounds(py::module_& module) {
  module.def(
      "read_bytes",
      [](const std::string& isa, int threads, uint64_t address, int64_t bytes) {
        py::gil_scoped_release release;
        read_bytes(isa, pointer<const uint8_t>(address), bytes, threads);
      },
      "Read memory once: the bound of a multiply of few rows by bandwidth.");
  module.def(
      "multiply_add",
      [](const std::string& isa, int threads, int64_t count) {
        py::gil_scoped_release release;
        multiply_add(isa, count, threads);
      },
      "`count` float32 multiply-adds in registers, shared by the threads.");
  module.def(
      "expand_weight",
      [](const std::string& isa, int threads, Format format, int64_t n, int64_t k, uint64_t address,
         int64_t repeats) {
        py::gil_scoped_release release;
        expand_weight(isa, format, n, k, pointer<const uint8_t>(address), repeats, threads);
      },
      "A packed weight [n, k] to float32 in registers, `repeats` times, shared by the threads.");
}

}  // namespace

void bind_linear_operators(py::module_& module) {
  bind_enums(module);
  bind_pack(module);
  bind_linear(module);
  bind_rows(module);
  bind_quantisers(module);
  bind_bounds(module);
}

}  // namespace hk::cpu
