#include "hip/hip_report.hpp"

#include <cstdio>

namespace hk::emulator {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += char(c);
    } else if (c < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += char(c);
    }
  }
  return out + '"';
}

// Makes a JSON object of a map, {"a": 1, ...}; `show` turns a value into JSON.
template <class Map, class Show>
std::string object(const Map& map, Show show) {
  std::string out = "{";
  for (const auto& [key, value] : map) {
    if (out.size() > 1) out += ", ";
    if constexpr (std::is_integral_v<std::decay_t<decltype(key)>>)
      out += quoted(std::to_string(key));  // JSON's keys are strings
    else
      out += quoted(key);
    out += ": " + show(value);
  }
  return out + "}";
}

std::string number(uint64_t value) { return std::to_string(value); }

std::string finding_json(const Finding& f) {
  return "{\"check\": " + quoted(f.check) + ", \"message\": " + quoted(f.message) +
         ", \"kernel\": " + quoted(f.kernel) + ", \"instruction\": " + quoted(f.instruction) +
         ", \"other_instruction\": " + quoted(f.other_instruction) + ", \"pc\": " + number(f.pc) +
         ", \"other_pc\": " + number(f.other_pc) + ", \"workgroup\": " + number(f.workgroup) +
         ", \"wave\": " + number(f.wave) + ", \"lane\": " + std::to_string(f.lane) +
         ", \"address\": " + number(f.address) + ", \"source\": " + quoted(f.source) + "}";
}

std::string counters_json(const Counters& c) {
  auto phases = [](const std::array<uint64_t, 2>& taken_needed) {
    return "[" + number(taken_needed[0]) + ", " + number(taken_needed[1]) + "]";
  };
  return "{\"instructions\": " + number(c.instructions) +
         ", \"matrix_flops\": " + number(c.matrix_flops) +
         ", \"by_class\": " + object(c.by_class, number) +
         ", \"by_mnemonic\": " + object(c.by_mnemonic, number) +
         ", \"bytes\": " + object(c.bytes, number) +
         ", \"executed\": " + object(c.executed, number) +
         ", \"lds_phases\": " + object(c.lds_phases, phases) +
         ", \"lds_unmodelled\": " + object(c.lds_unmodelled, number) + "}";
}

template <class Map>
void add_to(Map& total, const Map& more) {
  for (const auto& [key, value] : more) total[key] += value;
}

}  // namespace

void Summary::add(const std::string& kernel, const Report& report) {
  findings.insert(findings.end(), report.findings.begin(), report.findings.end());
  KernelRuns& runs = kernels[kernel];
  runs.launches += 1;
  Counters& total = runs.counters;
  const Counters& more = report.counters;
  total.instructions += more.instructions;
  total.matrix_flops += more.matrix_flops;
  add_to(total.by_class, more.by_class);
  add_to(total.by_mnemonic, more.by_mnemonic);
  add_to(total.executed, more.executed);
  add_to(total.bytes, more.bytes);
  add_to(total.lds_unmodelled, more.lds_unmodelled);
  for (const auto& [pc, phases] : more.lds_phases)
    for (int i = 0; i < 2; ++i) total.lds_phases[pc][i] += phases[i];
}

std::string to_json(const Summary& summary) {
  std::string findings;
  for (const Finding& finding : summary.findings) {
    if (!findings.empty()) findings += ", ";
    findings += finding_json(finding);
  }
  auto runs = [](const Summary::KernelRuns& k) {
    return "{\"launches\": " + number(k.launches) + ", \"counters\": " + counters_json(k.counters) +
           "}";
  };
  return "{\"synchronising_calls\": " + number(summary.synchronising_calls) + ", \"findings\": [" +
         findings + "], \"kernels\": " + object(summary.kernels, runs) + "}";
}

}  // namespace hk::emulator
