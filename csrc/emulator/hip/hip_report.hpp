// Findings and counters as JSON text.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "machine/machine.hpp"

namespace hk::emulator {

// Findings and counters of all launches since the report was last forgotten.
struct Summary {
  uint64_t synchronising_calls = 0;
  std::vector<Finding> findings;
  struct KernelRuns {
    uint64_t launches = 0;
    Counters counters;  // counters of all these launches
  };
  std::map<std::string, KernelRuns> kernels;

  void add(const std::string& kernel, const Report& report);
};

// The summary as JSON: {"synchronising_calls": n, "findings": [{"check": ...}], "kernels": {name:
// {...}}}. Field names are those of the structs; addresses and pcs are numbers.
std::string to_json(const Summary& summary);

}  // namespace hk::emulator
