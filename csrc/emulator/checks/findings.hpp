// The findings that checks report.
#pragma once

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "machine/machine.hpp"
#include "machine/prepared.hpp"
#include "machine/wave.hpp"

namespace hk::emulator {

// Details of a finding besides its message; -1 or 0: not applicable.
struct Place {
  uint32_t instruction = 0;  // index of the instruction
  int64_t other = -1;        // index of the conflicting instruction
  uint32_t wave = 0;
  int lane = -1;
  Address address = 0;
};

// Findings of one workgroup. A check between the same two instructions is kept only once.
class Findings {
 public:
  Findings(const Kernel& kernel, int limit) : kernel_(&kernel), limit_(limit) {}
  void start(uint32_t workgroup) {
    workgroup_ = workgroup;
    seen_.clear();
  }
  void add(std::string check, std::string message, const Place& place);
  std::vector<Finding> take() { return std::move(list_); }

 private:
  const Kernel* kernel_;
  int limit_;
  uint32_t workgroup_ = 0;
  std::set<std::tuple<std::string, uint32_t, int64_t>> seen_;
  std::vector<Finding> list_;
};

std::string register_name(int index);   // name of a row of Wave::vgpr: v7, a3
std::string scalar_name(int encoding);  // name of a scalar register: s7, vcc_lo, m0, exec_hi
std::string hex(uint64_t value);

// Exception that ends a workgroup after a finding that prevents it from going on.
struct Stop {};

}  // namespace hk::emulator
