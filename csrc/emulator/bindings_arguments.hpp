// Kernel arguments from Python: bytes as they are, or a sequence of values.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "loader/code_object.hpp"

namespace hk::emulator {

// Bytes of a kernel's declared arguments. `given` is bytes, or one value for each argument that is
// not hidden. Throws ValueError that names the argument, its value and what is valid.
std::string arguments_of(const Kernel& kernel, const pybind11::object& given);

}  // namespace hk::emulator
