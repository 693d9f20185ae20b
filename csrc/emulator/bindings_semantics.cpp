// Bindings for tests: run one instruction's handler on a state given from Python, without decoder
// or machine.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <memory>

#include "semantics/semantics.hpp"
#include "machine/wave.hpp"

namespace py = pybind11;

namespace hk::emulator {
namespace {

using Array = py::array_t<uint32_t, py::array::c_style>;

Arch arch_of(const std::string& name) {
  if (name == "gfx942") return Arch::gfx942;
  if (name == "gfx950") return Arch::gfx950;
  throw py::value_error("arch: " + name + " (gfx942 or gfx950)");
}

// Makes an operand of a tuple: ("v", 3), ("s", 106, 2), ("a", 0), ("c", bits), ("scc",). Dwords,
// negate and absolute follow.
Operand operand_of(const py::tuple& t) {
  static const std::unordered_map<std::string, Kind> kinds{
      {"s", Kind::sgpr},  {"v", Kind::vgpr},    {"a", Kind::agpr},      {"c", Kind::constant},
      {"scc", Kind::scc}, {"vccz", Kind::vccz}, {"execz", Kind::execz}, {"none", Kind::none}};
  Operand o;
  o.kind = kinds.at(t[0].cast<std::string>());
  const uint64_t number = t.size() > 1 ? t[1].cast<uint64_t>() : 0;
  if (o.kind == Kind::constant)
    o.value = number;
  else
    o.index = uint16_t(number);
  if (t.size() > 2) o.dwords = t[2].cast<uint8_t>();
  if (t.size() > 3) o.negate = t[3].cast<bool>();
  if (t.size() > 4) o.absolute = t[4].cast<bool>();
  return o;
}

template <auto kMember>
void set(Instruction& in, int64_t value) {
  in.*kMember = static_cast<std::remove_reference_t<decltype(in.*kMember)>>(value);
}

void set_field(Instruction& in, const std::string& name, int64_t value) {
  using I = Instruction;
  static const std::unordered_map<std::string, void (*)(I&, int64_t)> fields{
      {"clamp", set<&I::clamp>},
      {"omod", set<&I::omod>},
      {"op_sel", set<&I::op_sel>},
      {"op_sel_hi", set<&I::op_sel_hi>},
      {"neg_lo", set<&I::neg_lo>},
      {"neg_hi", set<&I::neg_hi>},
      {"cbsz", set<&I::cbsz>},
      {"abid", set<&I::abid>},
      {"blgp", set<&I::blgp>},
      {"dpp", set<&I::dpp>},
      {"sdwa", set<&I::sdwa>},
      {"bound_ctrl", set<&I::bound_ctrl>},
      {"dpp_ctrl", set<&I::dpp_ctrl>},
      {"row_mask", set<&I::row_mask>},
      {"bank_mask", set<&I::bank_mask>},
      {"dst_sel", set<&I::dst_sel>},
      {"dst_unused", set<&I::dst_unused>},
      {"src0_sel", set<&I::src0_sel>},
      {"src1_sel", set<&I::src1_sel>},
      {"src0_sext", set<&I::src0_sext>},
      {"src1_sext", set<&I::src1_sext>},
      {"simm", set<&I::simm>}};
  const auto found = fields.find(name);
  if (found == fields.end()) throw py::value_error("no such field of an instruction: " + name);
  found->second(in, value);
}

// Runs the handler on the arrays in place; returns (scc, mode).
py::tuple execute(const std::string& mnemonic, const std::string& arch, Array sgpr, Array vgpr,
                  const std::vector<py::tuple>& dst, const std::vector<py::tuple>& src,
                  uint32_t mode, bool scc, const py::dict& fields) {
  if (sgpr.size() != 128) throw py::value_error("sgpr: 128 dwords");
  if (vgpr.size() != 512 * kLanes) throw py::value_error("vgpr: 512 x 64 dwords");
  if (dst.size() > 2) throw py::value_error("dst: at most 2 operands");
  if (src.size() > 5) throw py::value_error("src: at most 5 operands");
  const Execute handler = find_semantics(mnemonic, arch_of(arch));
  if (!handler) throw py::key_error(mnemonic + " on " + arch);
  Instruction in;
  in.num_dst = uint8_t(dst.size());
  in.num_src = uint8_t(src.size());
  for (size_t i = 0; i < dst.size(); ++i) in.dst[i] = operand_of(dst[i]);
  for (size_t i = 0; i < src.size(); ++i) in.src[i] = operand_of(src[i]);
  for (const auto& [name, value] : fields)
    set_field(in, name.cast<std::string>(), value.cast<int64_t>());
  const auto wave = std::make_unique<Wave>();
  std::memcpy(wave->sgpr, sgpr.data(), sizeof wave->sgpr);
  std::memcpy(wave->vgpr, vgpr.data(), sizeof wave->vgpr);
  wave->mode = mode;
  wave->scc = scc;
  handler(*wave, in);
  std::memcpy(sgpr.mutable_data(), wave->sgpr, sizeof wave->sgpr);
  std::memcpy(vgpr.mutable_data(), wave->vgpr, sizeof wave->vgpr);
  return py::make_tuple(wave->scc, wave->mode);
}

}  // namespace

void bind_semantics(py::module_& module) {
  py::register_exception<Unsupported>(module, "Unsupported", PyExc_NotImplementedError);
  module.def("execute", execute, py::arg("mnemonic"), py::arg("arch"), py::arg("sgpr").noconvert(),
             py::arg("vgpr").noconvert(), py::arg("dst"), py::arg("src"), py::arg("mode"),
             py::arg("scc"), py::arg("fields"));
  module.def("has_semantics", [](const std::string& mnemonic, const std::string& arch) {
    return find_semantics(mnemonic, arch_of(arch)) != nullptr;
  });
}

}  // namespace hk::emulator
