// hk_backend._hip: the launcher. What each method takes and raises: hk_backend/_hip.pyi.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "kernel.hpp"
#include "recording.hpp"

namespace py = pybind11;
using namespace hk::hip;

namespace {

int (*read_tensor)(void*, DLTensor*) = nullptr;

// Remembers torch.Tensor's exchange table; false if this torch has none.
bool read_tensors_of(py::type tensor) {
  py::object capsule = py::getattr(tensor, "__dlpack_c_exchange_api__", py::none());
  if (!PyCapsule_IsValid(capsule.ptr(), kExchangeCapsule)) return false;
  auto* api =
      static_cast<DLPackExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), kExchangeCapsule));
  while (api && api->version.major != kExchangeMajor) api = api->older;
  read_tensor = api ? api->dltensor_from_py_object_no_sync : nullptr;
  return read_tensor;
}

DLTensor as_dltensor(py::handle tensor) {
  if (!read_tensor) throw std::runtime_error("read_tensors_of has not been called");
  DLTensor found;
  if (read_tensor(tensor.ptr(), &found)) throw py::error_already_set();
  return found;
}

std::optional<DLTensor> as_optional(py::handle tensor) {
  return tensor.is_none() ? std::nullopt : std::optional(as_dltensor(tensor));
}

using Numbers = std::tuple<size_t, size_t, size_t>;
using LaunchOf =
    std::tuple<std::shared_ptr<Kernel>, py::bytes, std::vector<Numbers>, std::vector<Numbers>>;
using TensorOf = std::pair<py::object, bool>;

Recording record(const std::vector<LaunchOf>& launches, const std::vector<TensorOf>& tensors,
                 uintptr_t alignment) {
  std::vector<Recording::Launch> made;
  for (const auto& [kernel, argument, addresses, values] : launches) {
    Recording::Launch& launch = made.emplace_back(kernel, argument);
    for (auto [tensor, byte, offset] : addresses)
      launch.addresses.push_back({tensor, byte, offset});
    for (auto [value, offset, bytes] : values) launch.values.push_back({value, offset, bytes});
  }
  std::vector<Recording::Tensor> like;
  for (const auto& [tensor, exact] : tensors) like.push_back({as_optional(tensor), exact});
  return Recording(std::move(made), like, alignment);
}

// `step` is an object, as pybind11 takes half a microsecond to make a null pointer of None.
bool repeat(const Recording& recording, Handle stream, const py::tuple& tensors,
            const py::object& step, const std::optional<std::vector<int64_t>>& addresses) {
  const size_t count = tensors.size(), expected = recording.tensors();
  if (count != expected || (addresses && addresses->size() != count))
    throw std::invalid_argument("tensors: " + std::to_string(count) + " are not valid: expected " +
                                std::to_string(expected));
  std::optional<DLTensor> found[kMostTensors];
  for (size_t i = 0; i < count; ++i) found[i] = as_optional(tensors[i]);
  Step* const of_step = step.is_none() ? nullptr : step.cast<Step*>();
  py::gil_scoped_release others;  // a full queue makes HIP wait
  return recording.launch(stream, found, addresses ? addresses->data() : nullptr, of_step);
}

// Raises the package's own Python exception `module`.`name`.
void raise(const char* module, const char* name, const py::tuple& arguments) {
  py::object type = py::module_::import(module).attr(name);
  PyErr_SetObject(type.ptr(), type(*arguments).ptr());
}

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Failure& failure) {
    raise("hk_backend.devices.hip.library", "HipError",
          py::make_tuple(failure.call, failure.code, failure.name, failure.text));
  } catch (const Unusable& unusable) {
    raise("hk_backend.devices.base", "DeviceError", py::make_tuple(unusable.why));
  }
}

}  // namespace

PYBIND11_MODULE(_hip, m) {
  py::register_exception_translator(translate);
  m.def("runtime_of", runtime_of, py::arg("user"));
  m.def("read_tensors_of", read_tensors_of, py::arg("tensor"));

  using WithoutGil = py::call_guard<py::gil_scoped_release>;
  py::class_<Library, std::shared_ptr<Library>>(m, "Library")
      .def(py::init<const std::string&, bool>(), py::arg("path"), py::arg("load"))
      .def_readonly("path", &Library::path)
      .def("device_count", &Library::device_count)
      .def("arch", &Library::arch, py::arg("index"))
      .def("compute_units", &Library::compute_units, py::arg("index"))
      .def("current_device", &Library::current_device)
      .def("set_current_device", &Library::set_current_device, py::arg("index"))
      .def("stream_device", &Library::device_of, py::arg("stream"))
      .def("is_capturing", &Library::is_capturing, py::arg("stream"))
      .def(
          "load_image",
          [](Library& library, const py::bytes& image) { return library.load(image); },
          py::arg("image"))
      .def("function", &Library::function, py::arg("module"), py::arg("symbol"))
      .def("allow_dynamic_lds", &Library::allow_dynamic_lds, py::arg("function"), py::arg("size"))
      .def(
          "launch",
          [](const Library& library, Handle function, Grid grid, unsigned block,
             unsigned dynamic_lds, Handle stream, const py::bytes& argument) {
            const std::string copy = argument;
            py::gil_scoped_release others;
            library.launch(function, grid, block, dynamic_lds, stream, copy.data(), copy.size());
          },
          py::arg("function"), py::arg("grid"), py::arg("block"), py::arg("dynamic_lds"),
          py::arg("stream"), py::arg("argument"))
      .def("synchronise", &Library::synchronise, py::arg("stream"), WithoutGil());

  py::class_<GridFunction>(m, "GridFunction")
      .def(py::init([](const std::string& name, const std::array<int32_t, 3>& tile) {
             return GridFunction(name, {tile[0], tile[1], tile[2]});
           }),
           py::arg("name"), py::arg("tile"))
      .def(
          "of",
          [](const GridFunction& grid, const std::string& argument) {
            const auto [x, y, z] = grid.of(argument.data(), argument.size());
            return py::make_tuple(x, y, z);
          },
          py::arg("argument"));

  py::class_<Kernel, std::shared_ptr<Kernel>>(m, "Kernel")
      .def(py::init([](std::shared_ptr<Library> library, int device, Handle function,
                       unsigned block, unsigned dynamic_lds, const GridFunction& grid) {
             return std::make_shared<Kernel>(
                 Kernel{std::move(library), device, function, block, dynamic_lds, grid});
           }),
           py::arg("library"), py::arg("index"), py::arg("function"), py::arg("block"),
           py::arg("dynamic_lds"), py::arg("grid"))
      .def(
          "launch",
          [](const Kernel& kernel, Handle stream, const py::bytes& argument) {
            const std::string copy = argument;
            py::gil_scoped_release others;
            OnDevice on(*kernel.library, kernel.device);
            check_owner(*kernel.library, stream, kernel.device);
            kernel.launch(stream, copy.data(), copy.size());
          },
          py::arg("stream"), py::arg("argument"));

  py::class_<Step>(m, "Step").def(
      py::init([](int device, std::vector<int64_t> values, int64_t rows) {
        return Step{device, std::move(values), rows};
      }),
      py::arg("index"), py::arg("values"), py::arg("rows"));

  py::class_<Recording>(m, "Recording")
      .def(py::init(&record), py::arg("launches"), py::arg("tensors"), py::arg("alignment"))
      .def("launch", &repeat, py::arg("stream"), py::arg("tensors"), py::arg("step") = py::none(),
           py::arg("addresses") = py::none());
}
