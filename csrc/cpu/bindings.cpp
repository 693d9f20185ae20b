// hk_backend._cpu: the host kernels as Python functions of pointers, dtypes, sizes and strides.
// No torch header and no torch library: one build serves every torch version.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "attention/bindings_attention.hpp"
#include "common/amx_permission.hpp"
#include "common/dtype.hpp"
#include "common/instruction_sets.hpp"
#include "linear/bindings_linear.hpp"

namespace py = pybind11;

PYBIND11_MODULE(_cpu, module) {
  using hk::cpu::DType;
  module.doc() = "Host kernels of hk_backend: pointers in, no torch linked.";
  py::enum_<DType>(module, "DType")
      .value("float32", DType::f32)
      .value("float16", DType::f16)
      .value("bfloat16", DType::bf16)
      .value("float8_e4m3fn", DType::f8e4m3fn)
      .value("float8_e5m2", DType::f8e5m2);
  module.def("available_isas", &hk::cpu::available_isas,
             "Instruction sets that this build has and this machine runs, best first.");
  module.def("left_out_isas", &hk::cpu::left_out_isas,
             "Instruction sets of this architecture that this build was compiled without.");
  module.def("why_no_amx", &hk::cpu::why_no_amx,
             "Why `amx` is not among them; empty if the kernel permits its tiles.");
  hk::cpu::bind_attention_operators(module);
  hk::cpu::bind_linear_operators(module);
}
