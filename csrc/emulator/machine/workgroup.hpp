// One workgroup on its way: its waves, its LDS, the order in which the waves take turns.
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

// What all workgroups of a launch share.
struct Launch {
  const Kernel* kernel = nullptr;
  std::shared_ptr<const Program> program;
  Memory* memory = nullptr;
  Synchronisation* synchronisation = nullptr;
  RegisterLimits limits{};
  Dim3 grid{}, block{};
  size_t lds_bytes = 0;
  Address kernarg = 0, dispatch_packet = 0;
  std::span<const std::byte> kernarg_bytes;
  uint32_t first_workgroup = 0;  // number of workgroup 0 for RaceShadow
  Options options;
};

// What one thread counts; the report adds them up.
struct Counts {
  enum Level { global_read, global_write, lds_read, lds_write, lds_copy, kLevels };
  std::vector<uint64_t> executed;               // per instruction
  std::vector<std::array<uint64_t, 2>> phases;  // taken, needed
  std::array<uint64_t, kLevels> bytes{};

  explicit Counts(size_t instructions) : executed(instructions), phases(instructions) {}
};

class Workgroup {
 public:
  explicit Workgroup(const Launch& launch);
  // Runs workgroup `number`; false if it stopped at a finding from which it could not go on.
  bool run(uint32_t number);

  const Launch& launch;
  Findings findings;
  Counts counts;
  Lds lds;
  Recorder* recorder = nullptr;  // of the trace that is wanted, if any
  uint32_t number = 0;
  std::vector<std::unique_ptr<WaveState>> waves;
  std::vector<std::byte> scratch;  // per wave and lane

  uint32_t shadow_number() const { return launch.first_workgroup + number; }
  // Whether the stores of all waves have been released by the time of an atomic of `wave`.
  bool has_released(const WaveState& wave) const;
  bool checks() const { return launch.options.checks; }
  // Reports and ends the workgroup.
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
  Place place(const WaveState& wave, uint32_t index) const {
    return {index, -1, wave.index, -1, 0};
  }

  std::mt19937_64 random_;
  VgprIndexing indexing_;
};

// Sets up a wave's registers as the kernel's descriptor asks (initial_state.cpp).
// Throws std::invalid_argument for what the machine does not provide.
void check_descriptor(const Kernel& kernel);
void set_initial_state(WaveState& wave, const Launch& launch, uint32_t workgroup);
uint32_t first_instruction(const Kernel& kernel);  // index

// Memory instructions (vector_memory.cpp, scalar_memory.cpp, lds_instructions.cpp).
void execute_vector_memory(Workgroup&, WaveState&, const Prepared&, uint32_t index);
void execute_scalar_load(Workgroup&, WaveState&, const Prepared&, uint32_t index);
void execute_lds(Workgroup&, WaveState&, const Prepared&, uint32_t index);
// A result arrives: in its registers, or in LDS.
void land(Workgroup&, WaveState&, InFlight&);

inline constexpr uint32_t kPoisonedRegister = 0xfff8dead;  // NaN, of f32 and of both halves' bf16
// The destination is poisoned until the result lands.
void poison(WaveState&, const InFlight&);

// Code addresses, as s_getpc_b64 gives them: .text lies there.
inline constexpr Address kTextAddress = Address(1) << 46;

}  // namespace hk::emulator
