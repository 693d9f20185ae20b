// The emulator's interface: memory, code objects, launches, findings, counters.
//
//   Machine machine(Arch::gfx950, options);
//   Address q = machine.map(host, bytes, "query");       // bounds are exactly these bytes
//   auto object = CodeObject::load(bytes_of_co);         // throws LoadError
//   Report report = machine.launch(object->kernel("attention_prefill..."), grid, block, lds, args);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "loader/code_object.hpp"
#include "isa/instruction.hpp"
#include "machine/trace.hpp"

namespace hk::emulator {

using Address = uint64_t;
using Dim3 = std::array<uint32_t, 3>;

// A finding of a check. A launch keeps its first `max_findings` findings.
struct Finding {
  std::string check;    // "lds-race", "unwaited-register", "out-of-bounds", ...
  std::string message;  // one line for a person
  std::string kernel, instruction, other_instruction;
  uint64_t pc = 0, other_pc = 0;
  uint32_t workgroup = 0, wave = 0;
  int lane = -1;
  Address address = 0;
  std::string source;  // file:line, if the code object has line tables
};

struct Counters {
  uint64_t instructions = 0;
  std::map<std::string, uint64_t> by_class, by_mnemonic;
  std::map<uint64_t, uint64_t> executed;  // executions by pc, over all waves
  uint64_t matrix_flops = 0;
  // Bytes by kind: "global_read", "global_write", "lds_read", "lds_write", "lds_copy".
  std::map<std::string, uint64_t> bytes;
  // LDS phases taken and needed, by pc, for widths with published phases; accesses of other widths
  // are counted by name.
  std::map<uint64_t, std::array<uint64_t, 2>> lds_phases;  // pc -> {taken, needed}
  std::map<std::string, uint64_t> lds_unmodelled;
};

struct Report {
  std::vector<Finding> findings;
  Counters counters;
};

struct Options {
  uint64_t seed = 0;  // for the order of waves' turns and, if not 0, of workgroups
  int threads = 1;    // number of workgroups that run in parallel
  bool checks = true;
  uint64_t max_instructions = 1ull << 32;  // per wave; more count as an endless loop
  int max_findings = 20;
};

class Machine {
 public:
  explicit Machine(Arch arch);
  ~Machine();
  Arch arch() const;
  // Makes host memory addressable. Regions are far apart, so that stray accesses fault.
  Address map(void* host, size_t bytes, std::string name);
  void unmap(Address address);  // throws std::invalid_argument if it is not mapped
  Report launch(const Kernel& kernel, Dim3 grid /* workgroups */, Dim3 block, size_t dynamic_lds,
                std::span<const std::byte> kernarg, const Options& options);
  // Runs only `workgroups` of the grid, without checks, and records what their waves execute.
  // Throws std::runtime_error with the finding if a workgroup cannot run to its end.
  Trace trace(const Kernel& kernel, Dim3 grid, Dim3 block, size_t dynamic_lds,
              std::span<const std::byte> kernarg, std::span<const uint32_t> workgroups,
              const Options& options);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hk::emulator
