// Findings and counters as JSON text.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "machine/machine.hpp"

namespace hk::emulator {

// What launches did since the report was last forgotten.
struct Summary {
  uint64_t synchronising_calls = 0;
  std::vector<Finding> findings;
  struct KernelRuns {
    uint64_t launches = 0;
    Counters counters;  // of all of them
  };
  std::map<std::string, KernelRuns> kernels;

  void add(const std::string& kernel, const Report& report);
};

// {"synchronising_calls": n, "findings": [{"check": ...}], "kernels": {name: {...}}}: the field
// names are those of the structs; addresses and pcs are numbers.
std::string to_json(const Summary& summary);

}  // namespace hk::emulator
