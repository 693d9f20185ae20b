#include "bindings_arguments.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "machine/hidden_arguments.hpp"

namespace py = pybind11;

namespace hk::emulator {
namespace {

constexpr const char* kForPointers = "an address, or None";

// One argument in the place of its kernel, for messages and for its bytes.
struct Slot {
  const Kernel& kernel;
  const KernelArgument& argument;
  size_t number;

  [[noreturn]] void refuse(const py::handle& value, const std::string& valid) const {
    const std::string name = argument.name.empty() ? "" : " (" + argument.name + ")";
    throw py::value_error("arguments of '" + kernel.name + "': number " + std::to_string(number) +
                          name + " is " + std::string(py::repr(value)) + "; valid: " + valid);
  }

  bool is_pointer() const {
    return argument.kind == "global_buffer" || argument.kind == "dynamic_shared_pointer";
  }

  std::string integer(const py::handle& value) const {
    const std::string bits = std::to_string(8 * argument.size);
    if (argument.size > 8) refuse(value, std::to_string(argument.size) + " bytes");
    const py::int_ number = py::reinterpret_borrow<py::int_>(value);
    const py::int_ one(1), width(8 * int(argument.size));
    const py::object end = one << width, least = -(one << (width - one));
    if (number < least || number >= end) refuse(value, "an integer of " + bits + " bits");
    const py::object bytes = (number & (end - one)).attr("to_bytes")(argument.size, "little");
    return bytes.cast<std::string>();
  }

  std::string real(const py::handle& value) const {
    std::string bytes(argument.size, '\0');
    const double wide = value.cast<double>();
    const float narrow = float(wide);
    if (is_pointer()) refuse(value, kForPointers);
    if (argument.size == 8)
      std::memcpy(bytes.data(), &wide, sizeof wide);
    else if (argument.size != 4)
      refuse(value, "an integer, or bytes of its format");
    else if (std::isinf(narrow) && !std::isinf(wide))
      refuse(value, "a number in the range of float32");
    else
      std::memcpy(bytes.data(), &narrow, sizeof narrow);
    return bytes;
  }

  std::string bytes_of(const py::handle& value) const {
    if (py::isinstance<py::bytes>(value)) {
      std::string bytes = value.cast<std::string>();
      if (bytes.size() != argument.size) refuse(value, std::to_string(argument.size) + " bytes");
      return bytes;
    }
    if (value.is_none() && is_pointer()) return std::string(argument.size, '\0');
    if (py::isinstance<py::int_>(value)) return integer(value);
    if (py::isinstance<py::float_>(value)) return real(value);
    refuse(value, is_pointer() ? kForPointers : "an integer, a float, or bytes");
  }
};

}  // namespace

std::string arguments_of(const Kernel& kernel, const py::object& given) {
  if (py::isinstance<py::bytes>(given)) return given.cast<std::string>();
  const py::sequence values = given;
  std::string packed(declared_bytes(kernel), '\0');  // compilers round the size up
  size_t count = 0;
  for (const KernelArgument& argument : kernel.arguments) {
    if (argument.kind.starts_with("hidden_")) continue;
    if (count < values.size()) {
      packed.resize(std::max<size_t>(packed.size(), argument.offset + argument.size));
      packed.replace(argument.offset, argument.size,
                     Slot{kernel, argument, count}.bytes_of(values[count]));
    }
    ++count;
  }
  if (count != values.size())
    throw py::value_error("arguments of '" + kernel.name + "': " + std::to_string(values.size()) +
                          " values; the kernel declares " + std::to_string(count));
  return packed;
}

}  // namespace hk::emulator
