#pragma once

#include <pybind11/pybind11.h>

namespace hk::cpu {

void bind_attention_operators(pybind11::module_& module);

}  // namespace hk::cpu
