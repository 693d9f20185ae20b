// A running workgroup: its waves, its LDS, and the order in which waves take turns.
#pragma once

#include <array>
#include <memory>
#include <random>
#include <vector>

#include "checks/findings.hpp"
#include "memory/lds.hpp"
#include "machine/machine.hpp"
#include "memory/memory.hpp"
#include "machine/prepared.hpp"
#include "machine/trace.hpp"
#include "machine/vgpr_indexing.hpp"
#include "semantics/registers.hpp"
#include "machine/wave_state.hpp"

namespace hk::emulator {

// State that all workgroups of a launch share.
struct Launch {
  const Kernel* kernel = nullptr;
  std::shared_ptr<const Program> program;
  Memory* memory = nullptr;
  Synchronisation* synchronisation = nullptr;
  RegisterLimits limits{};
  // Vector registers that may hold something: allocated ones, and others that the program names.
  uint16_t used_vgprs = 0, used_agprs = 0;
  Dim3 grid{}, block{};
  size_t lds_bytes = 0;
  Address kernarg = 0, dispatch_packet = 0;
  std::span<const std::byte> kernarg_bytes;
  uint32_t first_workgroup = 0;  // number of workgroup 0 for RaceShadow
  Options options;
};

// Counts of one thread; the report adds them up.
struct Counts {
  enum Level { global_read, global_write, lds_read, lds_write, lds_copy, kLevels };
  std::vector<uint64_t> executed;               // by instruction
  std::vector<std::array<uint64_t, 2>> phases;  // LDS phases taken and needed
  std::array<uint64_t, kLevels> bytes{};

  explicit Counts(size_t instructions) : executed(instructions), phases(instructions) {}
};

class Workgroup {
 public:
  explicit Workgroup(const Launch& launch);
  // Runs workgroup `number`. Returns false if a finding prevented it from running to its end.
  bool run(uint32_t number);

  const Launch& launch;
  Findings findings;
  Counts counts;
  Lds lds;
  Recorder* recorder = nullptr;  // recorder of the trace, if one is wanted
  uint32_t number = 0;
  std::vector<std::unique_ptr<WaveState>> waves;
  std::vector<std::byte> scratch;  // per wave and lane

  uint32_t shadow_number() const { return launch.first_workgroup + number; }
  // Whether the stores of all waves are released when `wave` executes an atomic.
  bool has_released(const WaveState& wave) const;
  bool checks() const { return launch.options.checks; }
  // Reports a finding and ends the workgroup.
  [[noreturn]] void stop(const char* check, const std::string& message, const Place& place);

 private:
  void start();
  void turns();
  void burst(WaveState& wave, uint32_t length);
  bool step(WaveState& wave);  // false: the wave's turn is over
  void find_copies_at_end(const WaveState& w, uint32_t index);
  bool control(WaveState& wave, const Prepared& p, uint32_t index);
  void jump(WaveState& wave, uint64_t address, uint32_t index);
  void find_missing_waves();
  void release_barrier();
  void wait(WaveState& wave, int vmcnt, int lgkmcnt);
  void make_room(WaveState& wave);
  Place place(const WaveState& wave, uint32_t index) const {
    return {index, -1, wave.index, -1, 0};
  }

  std::mt19937_64 random_;
  VgprIndexing indexing_;
};

// Sets up a wave's registers as the kernel's descriptor asks (initial_state.cpp).
// check_descriptor throws std::invalid_argument if it asks for what the machine does not provide.
void check_descriptor(const Kernel& kernel);
void set_initial_state(WaveState& wave, const Launch& launch, uint32_t workgroup);
uint32_t first_instruction(const Kernel& kernel);  // index

// Execute memory instructions (vector_memory.cpp, scalar_memory.cpp, lds_instructions.cpp).
void execute_vector_memory(Workgroup&, WaveState&, const Prepared&, uint32_t index);
void execute_scalar_load(Workgroup&, WaveState&, const Prepared&, uint32_t index);
void execute_lds(Workgroup&, WaveState&, const Prepared&, uint32_t index);
// Writes a result that arrives to its registers, or to LDS.
void land(Workgroup&, WaveState&, InFlight&);

inline constexpr uint32_t kPoisonedRegister = 0xfff8dead;  // NaN, of f32 and of both halves' bf16
// Poisons the destination until the result lands.
void poison(WaveState&, const InFlight&);

// Address of .text, to which s_getpc_b64's results refer.
inline constexpr Address kTextAddress = Address(1) << 46;

}  // namespace hk::emulator
