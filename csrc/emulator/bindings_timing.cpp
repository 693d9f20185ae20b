// hk_backend._emulator: bindings of traces and of the timing model; see _emulator.pyi.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "machine/prepared.hpp"
#include "timing/compute_unit.hpp"
#include "timing/device.hpp"
#include "timing/loop.hpp"
#include "timing/occupancy.hpp"
#include "timing/recorded.hpp"
#include "timing/traffic.hpp"

namespace py = pybind11;

namespace hk::emulator {

Arch arch_named(const std::string& name);  // bindings.cpp

namespace {

using namespace timing;

const char* certainty_name(Certainty c) {
  static constexpr const char* kNames[] = {"measured", "published", "calibrated", "guessed"};
  return kNames[int(c)];
}

void bind_parameters(py::module_& module) {
  py::class_<Parameters>(module, "TimingParameters")
      .def(py::init([](const std::string& arch, const std::map<std::string, double>& changes) {
             return Parameters(arch_named(arch), changes);
           }),
           py::arg("arch"), py::arg("changes") = std::map<std::string, double>())
      .def("__getitem__", [](const Parameters& parameters, const std::string& name) {
        for (const ParameterRow& row : parameter_rows())
          if (row.name == name) return parameters[row.parameter];
        throw py::key_error(name);
      });
  module.def(
      "timing_parameters",
      [](const std::string& arch) {
        std::vector<py::tuple> out;
        for (const ParameterRow& row : parameter_rows()) {
          const Estimate& e = row.of(arch_named(arch));
          out.push_back(py::make_tuple(row.name, e.value, e.low, e.high,
                                       certainty_name(e.certainty), row.unit, row.what,
                                       row.source));
        }
        return out;
      },
      py::arg("arch"), "(name, value, low, high, certainty, unit, what, source) of every row.");
}

uint64_t pc_of(const Trace& trace, uint32_t instruction) {
  return trace.program->instructions[instruction].instruction->pc;
}

py::dict instruction_times(const Trace& trace, const CuTime& time) {
  py::dict out;
  for (uint32_t i = 0; i < time.instructions.size(); ++i) {
    const InstructionTime& t = time.instructions[i];
    if (t.executed == 0) continue;
    py::dict stalls;
    for (int s = 0; s < kStalls; ++s)
      if (t.stalled[size_t(s)]) stalls[stall_name(Stall(s))] = t.stalled[size_t(s)];
    out[py::int_(pc_of(trace, i))] = py::make_tuple(unit_name(t.unit), t.executed, t.issue, stalls);
  }
  return out;
}

template <typename Kind>
std::vector<std::string> names(int count, const char* (*name_of)(Kind)) {
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) out.push_back(name_of(Kind(i)));
  return out;
}

// Events as a structured array, with fields by name.
py::array wave_events(const Trace& trace, const CuTime& time) {
  std::vector<WaveEvent> events = time.events.waves;
  for (WaveEvent& e : events) e.instruction = uint32_t(pc_of(trace, e.instruction));
  return py::array_t<WaveEvent>(py::ssize_t(events.size()), events.data());
}

py::array unit_events(const CuTime& time) {
  const std::vector<UnitEvent>& events = time.events.units;
  return py::array_t<UnitEvent>(py::ssize_t(events.size()), events.data());
}

// A wave's steps: an array of [pc, taken, needed, shared].
using Steps = py::array_t<uint32_t, py::array::c_style | py::array::forcecast>;

RecordedWave recorded_wave(const Steps& steps) {
  if (steps.ndim() != 2 || steps.shape(1) != 4)
    throw std::invalid_argument("waves: an array that is not [steps, 4]");
  RecordedWave wave(size_t(steps.shape(0)));
  const auto rows = steps.unchecked<2>();
  for (py::ssize_t i = 0; i < rows.shape(0); ++i)
    wave[size_t(i)] = {rows(i, 0), rows(i, 1), rows(i, 2), rows(i, 3)};
  return wave;
}

Trace recorded(const Kernel& kernel, const std::vector<std::vector<Steps>>& workgroups) {
  std::vector<RecordedWorkgroup> found;
  for (const std::vector<Steps>& waves : workgroups) {
    RecordedWorkgroup& workgroup = found.emplace_back();
    for (const Steps& steps : waves) workgroup.push_back(recorded_wave(steps));
  }
  return recorded_trace(kernel, found);
}

using Places = std::vector<std::vector<std::pair<uint32_t, uint32_t>>>;

// The places of all waves of a trace. Throws std::invalid_argument if one is missing or invalid.
std::vector<std::vector<WavePlace>> wave_places(const Trace& trace, const Places& places) {
  std::vector<std::vector<WavePlace>> found;
  if (places.empty()) return found;
  if (places.size() != trace.workgroups.size())
    throw std::invalid_argument("places: " + std::to_string(places.size()) + " for " +
                                std::to_string(trace.workgroups.size()) + " workgroups");
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].size() != trace.workgroups[i].waves.size())
      throw std::invalid_argument("places: " + std::to_string(places[i].size()) + " for " +
                                  std::to_string(trace.workgroups[i].waves.size()) + " waves");
    auto& own = found.emplace_back();
    for (const auto& [simd, delay] : places[i]) {
      if (simd >= kSimds)
        throw std::invalid_argument("places: SIMD " + std::to_string(simd) + "; valid: 0 to 3");
      own.push_back({simd, delay});
    }
  }
  return found;
}

void bind_compute_unit(py::module_& module) {
  py::class_<WorkgroupTime>(module, "WorkgroupTime")
      .def_readonly("trace", &WorkgroupTime::trace)
      .def_readonly("slot", &WorkgroupTime::slot)
      .def_readonly("start", &WorkgroupTime::start)
      .def_readonly("end", &WorkgroupTime::end)
      .def_readonly("loop_start", &WorkgroupTime::loop_start)
      .def_readonly("loop_end", &WorkgroupTime::loop_end)
      .def_readonly("wave_clocks", &WorkgroupTime::wave_clocks);
  PYBIND11_NUMPY_DTYPE_EX(WaveEvent, workgroup, "workgroup", wave, "wave", simd, "simd",
                          instruction, "pc", start, "start", clocks, "clocks", waits, "waits", what,
                          "what");
  PYBIND11_NUMPY_DTYPE(UnitEvent, unit, simd, start, clocks);
  py::class_<CuTime>(module, "CuTime")
      .def_readonly("clocks", &CuTime::clocks)
      .def_readonly("workgroups", &CuTime::workgroups)
      .def_readonly("matrix_flops", &CuTime::matrix_flops)
      .def_property_readonly(
          "busy",
          [](const CuTime& t) {
            return std::map<std::string, double>{
                {"vector", t.vector_busy},        {"matrix", t.matrix_busy},
                {"matrix issue", t.matrix_issue}, {"lds", t.lds_busy},
                {"scalar", t.scalar_busy},        {"memory path", t.memory.path_busy},
                {"l2", t.memory.l2_busy},         {"fabric", t.memory.fabric_busy},
                {"hbm", t.memory.hbm_busy}};
          })
      .def_property_readonly("bytes", [](const CuTime& t) {
        return std::map<std::string, double>{{"l2", t.memory.l2_bytes},
                                             {"fabric", t.memory.fabric_bytes},
                                             {"hbm_read", t.memory.hbm_read_bytes},
                                             {"hbm_written", t.memory.hbm_written_bytes}};
      });
  module.def(
      "replay",
      [](const Trace& trace, const Parameters& parameters,
         const std::vector<std::vector<uint32_t>>& slots, const std::vector<uint64_t>& starts,
         uint32_t active, double clock_ghz, std::pair<uint64_t, uint64_t> loop,
         std::pair<uint64_t, uint64_t> events_within, const Places& places, bool traced,
         const std::vector<uint64_t>& gaps) {
        CuWork work{&trace,
                    slots,
                    starts,
                    memory_share(parameters, active, clock_ghz),
                    0,
                    0,
                    events_within.first,
                    events_within.second,
                    wave_places(trace, places),
                    gaps,
                    traced};
        if (!gaps.empty() && gaps.size() != trace.workgroups.size())
          throw std::invalid_argument("gaps: " + std::to_string(gaps.size()) + " for " +
                                      std::to_string(trace.workgroups.size()) + " workgroups");
        if (starts.size() != slots.size())
          throw std::invalid_argument("starts: " + std::to_string(starts.size()) + " for " +
                                      std::to_string(slots.size()) + " slots");
        for (const auto& slot : slots)
          for (const uint32_t t : slot)
            if (t >= trace.workgroups.size())
              throw std::invalid_argument("slots: trace " + std::to_string(t) + " of " +
                                          std::to_string(trace.workgroups.size()));
        const auto& program = trace.program->instructions;
        for (uint32_t i = 0; i < program.size(); ++i) {
          if (program[i].instruction->pc < loop.first) work.loop_begin = i + 1;
          if (program[i].instruction->pc < loop.second) work.loop_end = i + 1;
        }
        py::gil_scoped_release release;
        return replay(work, parameters);
      },
      py::arg("trace"), py::arg("parameters"), py::arg("slots"), py::arg("starts"),
      py::arg("active"), py::arg("clock_ghz"), py::arg("loop") = std::pair<uint64_t, uint64_t>(),
      py::arg("events_within") = std::pair<uint64_t, uint64_t>(), py::arg("places") = Places(),
      py::arg("traced") = false, py::arg("gaps") = std::vector<uint64_t>());
  module.def("recorded_trace", &recorded, py::arg("kernel"), py::arg("workgroups"));
  module.def("instruction_times", &instruction_times, py::arg("trace"), py::arg("time"));
  module.def("unit_names", [] { return names(kUnits, &unit_name); });
  module.def("stall_names", [] { return names(kStalls, &stall_name); });
  module.def("wave_events", &wave_events, py::arg("trace"), py::arg("time"));
  module.def("unit_events", &unit_events, py::arg("time"));
}

void bind_device(py::module_& module) {
  py::class_<DeviceTime>(module, "DeviceTime")
      .def_readonly("clocks", &DeviceTime::clocks)
      .def_readonly("busy_share", &DeviceTime::busy_share)
      .def_property_readonly("places", [](const DeviceTime& t) {
        return py::array_t<uint32_t>(py::ssize_t(t.places.size()), t.places.data());
      });
  module.def(
      "schedule",
      [](const py::array_t<double, py::array::c_style | py::array::forcecast>& lengths,
         uint32_t slots, const Parameters& parameters) {
        return schedule({lengths.data(), size_t(lengths.size())}, slots, parameters);
      },
      py::arg("lengths"), py::arg("slots"), py::arg("parameters"));
}

}  // namespace

void bind_timing(py::module_& module) {
  bind_parameters(module);
  py::class_<Trace>(module, "Trace")
      .def_readonly("registers", &Trace::registers)
      .def_readonly("lds_bytes", &Trace::lds_bytes)
      .def_property_readonly("steps",
                             [](const Trace& t) {
                               std::vector<uint64_t> out;
                               for (const auto& g : t.workgroups) {
                                 out.push_back(0);
                                 for (const auto& w : g.waves) out.back() += w.size();
                               }
                               return out;
                             })
      .def_property_readonly("workgroups",
                             [](const Trace& t) {
                               std::vector<uint32_t> out;
                               for (const auto& g : t.workgroups) out.push_back(g.number);
                               return out;
                             })
      .def_property_readonly("loop",
                             [](const Trace& t) {
                               const Loop loop = steady_loop(t);
                               if (loop.end == 0) return std::pair<uint64_t, uint64_t>();
                               const Instruction& last =
                                   *t.program->instructions[loop.end - 1].instruction;
                               return std::pair(pc_of(t, loop.begin), last.pc + last.size);
                             })
      .def_property_readonly("traffic",
                             [](const Trace& t) {
                               std::vector<std::tuple<double, double, double>> out;
                               for (const Traffic& own : traffic(t))
                                 out.emplace_back(own.read, own.streamed, own.written);
                               return out;
                             })
      .def(
          "resident", [](const Trace& t, const Parameters& p) { return resident_workgroups(t, p); },
          py::arg("parameters"), "Workgroups that fit on a CU at once.");
  bind_compute_unit(module);
  bind_device(module);
}

}  // namespace hk::emulator
