// hk_backend._emulator: the emulated machine for Python. It takes addresses and bytes, no tensors;
// see _emulator.pyi.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <string>
#include <string_view>

#include "bindings_arguments.hpp"
#include "isa/decode.hpp"
#include "machine/machine.hpp"
#include "isa/opcodes.hpp"
#include "machine/prepared.hpp"
#include "semantics/semantics.hpp"

namespace py = pybind11;

namespace hk::emulator {

void bind_semantics(py::module_& module);  // bindings_semantics.cpp
void bind_timing(py::module_& module);     // bindings_timing.cpp

namespace {

std::span<const std::byte> bytes_of(const py::bytes& data) {
  const std::string_view view = data;
  return {reinterpret_cast<const std::byte*>(view.data()), view.size()};
}

}  // namespace

Arch arch_named(const std::string& name) {
  if (name == "gfx942") return Arch::gfx942;
  if (name == "gfx950") return Arch::gfx950;
  throw std::invalid_argument("arch '" + name + "'; valid: gfx942, gfx950");
}

namespace {

const char* name_of(Arch arch) { return arch == Arch::gfx942 ? "gfx942" : "gfx950"; }

Dim3 dim3(const std::vector<uint32_t>& sizes, const char* what) {
  if (sizes.empty() || sizes.size() > 3)
    throw std::invalid_argument(std::string(what) + ": " + std::to_string(sizes.size()) +
                                " sizes; valid: 1 to 3");
  Dim3 out = {1, 1, 1};
  std::copy(sizes.begin(), sizes.end(), out.begin());
  return out;
}

void bind_report(py::module_& module) {
  py::class_<Finding>(module, "Finding")
      .def_readonly("check", &Finding::check)
      .def_readonly("message", &Finding::message)
      .def_readonly("kernel", &Finding::kernel)
      .def_readonly("instruction", &Finding::instruction)
      .def_readonly("other_instruction", &Finding::other_instruction)
      .def_readonly("pc", &Finding::pc)
      .def_readonly("other_pc", &Finding::other_pc)
      .def_readonly("workgroup", &Finding::workgroup)
      .def_readonly("wave", &Finding::wave)
      .def_readonly("lane", &Finding::lane)
      .def_readonly("address", &Finding::address)
      .def_readonly("source", &Finding::source)
      .def("__repr__", [](const Finding& f) { return "<Finding " + f.message + ">"; });
  py::class_<Counters>(module, "Counters")
      .def_readonly("instructions", &Counters::instructions)
      .def_readonly("by_class", &Counters::by_class)
      .def_readonly("by_mnemonic", &Counters::by_mnemonic)
      .def_readonly("executed", &Counters::executed)
      .def_readonly("matrix_flops", &Counters::matrix_flops)
      .def_readonly("bytes", &Counters::bytes)
      .def_readonly("lds_phases", &Counters::lds_phases)
      .def_readonly("lds_unmodelled", &Counters::lds_unmodelled);
  py::class_<Report>(module, "Report")
      .def_readonly("findings", &Report::findings)
      .def_readonly("counters", &Report::counters);
}

void bind_code_object(py::module_& module) {
  py::register_exception<LoadError>(module, "LoadError", PyExc_ValueError);
  py::class_<KernelArgument>(module, "KernelArgument")
      .def_readonly("name", &KernelArgument::name)
      .def_readonly("kind", &KernelArgument::kind)
      .def_readonly("offset", &KernelArgument::offset)
      .def_readonly("size", &KernelArgument::size);
  py::class_<Kernel>(module, "Kernel")
      .def_readonly("name", &Kernel::name)
      .def_property_readonly("arch", [](const Kernel& k) { return name_of(k.arch); })
      .def_readonly("static_lds", &Kernel::static_lds)
      .def_readonly("scratch", &Kernel::scratch)
      .def_readonly("kernarg_size", &Kernel::kernarg_size)
      .def_readonly("max_block", &Kernel::max_block)
      .def_readonly("vgprs", &Kernel::vgprs)
      .def_readonly("agprs", &Kernel::agprs)
      .def_readonly("sgprs", &Kernel::sgprs)
      .def_readonly("vgpr_spills", &Kernel::vgpr_spills)
      .def_readonly("sgpr_spills", &Kernel::sgpr_spills)
      .def_readonly("entry", &Kernel::entry)
      .def_readonly("arguments", &Kernel::arguments)
      .def_property_readonly("lines", [](const Kernel& k) {
        std::map<uint64_t, std::string> out;
        for (size_t i = 0; k.lines && i < k.lines->size(); ++i)
          if (!(*k.lines)[i].empty()) out[(*k.text)[i].pc] = (*k.lines)[i];
        return out;
      });
  py::class_<CodeObject, std::shared_ptr<CodeObject>>(module, "CodeObject")
      .def_static(
          "load",
          [](const py::bytes& elf, const py::bytes& lines) {
            return CodeObject::load(bytes_of(elf), bytes_of(lines));
          },
          py::arg("elf"), py::arg("lines") = py::bytes(),
          "Raises LoadError. lines: the file with line tables beside the stripped one.")
      .def_property_readonly("arch", [](const CodeObject& o) { return name_of(o.arch()); })
      .def_property_readonly("kernels", &CodeObject::kernels)
      .def(
          "kernel",
          [](const CodeObject& o, const std::string& name) -> Kernel {
            try {
              return o.kernel(name);
            } catch (const std::out_of_range&) {
              std::string known;
              for (const Kernel& k : o.kernels()) known += (known.empty() ? "" : ", ") + k.name;
              throw py::key_error("kernel '" + name + "'; valid: " + known);
            }
          },
          py::arg("name"));
}

Report launch(Machine& machine, const Kernel& kernel, const std::vector<uint32_t>& grid,
              const std::vector<uint32_t>& block, const py::object& kernarg, size_t dynamic_lds,
              uint64_t seed, int threads, bool checks, uint64_t max_instructions,
              int max_findings) {
  Options options{seed, threads, checks, max_instructions, max_findings};
  const Dim3 g = dim3(grid, "grid"), b = dim3(block, "block");
  const std::string arguments = arguments_of(kernel, kernarg);
  py::gil_scoped_release release;
  return machine.launch(kernel, g, b, dynamic_lds, std::as_bytes(std::span(arguments)), options);
}

Trace trace(Machine& machine, const Kernel& kernel, const std::vector<uint32_t>& grid,
            const std::vector<uint32_t>& block, const py::object& kernarg,
            const std::vector<uint32_t>& workgroups, size_t dynamic_lds, int threads) {
  Options options;
  options.threads = threads;
  const Dim3 g = dim3(grid, "grid"), b = dim3(block, "block");
  const std::string arguments = arguments_of(kernel, kernarg);
  py::gil_scoped_release release;
  return machine.trace(kernel, g, b, dynamic_lds, std::as_bytes(std::span(arguments)), workgroups,
                       options);
}

void bind_machine(py::module_& module) {
  const Options defaults;
  py::class_<Machine>(module, "Machine")
      .def(py::init(
               [](const std::string& arch) { return std::make_unique<Machine>(arch_named(arch)); }),
           py::arg("arch"))
      .def_property_readonly("arch", [](const Machine& m) { return name_of(m.arch()); })
      .def(
          "map",
          [](Machine& m, uintptr_t host, size_t bytes, std::string name) {
            return m.map(reinterpret_cast<void*>(host), bytes, std::move(name));
          },
          py::arg("host"), py::arg("bytes"), py::arg("name"),
          "Makes host memory addressable; the caller keeps it alive. Returns its device address.")
      .def("unmap", &Machine::unmap, py::arg("address"))
      .def("launch", &launch, py::arg("kernel"), py::arg("grid"), py::arg("block"),
           py::arg("kernarg"), py::kw_only(), py::arg("dynamic_lds") = 0,
           py::arg("seed") = defaults.seed, py::arg("threads") = defaults.threads,
           py::arg("checks") = defaults.checks,
           py::arg("max_instructions") = defaults.max_instructions,
           py::arg("max_findings") = defaults.max_findings,
           "Runs a kernel. grid: workgroups, block: work-items, each 1 to 3 sizes. kernarg: bytes, "
           "or a value for each declared argument.")
      .def("trace", &trace, py::arg("kernel"), py::arg("grid"), py::arg("block"),
           py::arg("kernarg"), py::kw_only(), py::arg("workgroups"), py::arg("dynamic_lds") = 0,
           py::arg("threads") = defaults.threads,
           "Runs some workgroups of the grid and records what their waves execute.");
}

void bind_decode(py::module_& module) {
  module.def(
      "disassemble",
      [](const py::bytes& text, const std::string& arch) {
        const DecodedText decoded = decode_text(bytes_of(text), arch_named(arch));
        std::vector<std::pair<uint64_t, std::string>> out;
        for (const Instruction& in : decoded.instructions) out.emplace_back(in.pc, to_string(in));
        return out;
      },
      py::arg("text"), py::arg("arch"), "(byte offset, instruction) of a .text section.");
  module.def(
      "opcodes",
      [](const std::string& arch) {
        static constexpr const char* kFormats[] = {
            "sop2", "sopk",  "sop1", "sopc",        "sopp", "smem", "vop1",    "vop2",   "vopc",
            "vop3", "vop3p", "mfma", "scaled_mfma", "ds",   "flat", "scratch", "global", "mubuf"};
        static_assert(std::size(kFormats) == size_t(Format::count));
        std::vector<std::tuple<std::string, unsigned, std::string, bool>> out;
        for (const OpcodeEntry* e : all_opcodes(arch_named(arch)))
          out.emplace_back(kFormats[size_t(e->format)], e->number, e->mnemonic, is_emulated(*e));
        return out;
      },
      py::arg("arch"), "(format, number, mnemonic, whether it can be executed) of all opcodes.");
}

}  // namespace
}  // namespace hk::emulator

PYBIND11_MODULE(_emulator, module) {
  module.doc() = "Executes AMD GPU code objects (gfx942, gfx950) instruction by instruction.";
  hk::emulator::bind_code_object(module);
  hk::emulator::bind_report(module);
  hk::emulator::bind_machine(module);
  hk::emulator::bind_decode(module);
  hk::emulator::bind_semantics(module);
  hk::emulator::bind_timing(module);
}
