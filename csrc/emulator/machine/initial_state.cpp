// The registers of a wave when its kernel starts (LLVM AMDGPU usage, "Initial Kernel Execution
// State" and "Kernel Descriptor", GFX9 with architected flat scratch: gfx942, gfx950).
#include <cstring>
#include <stdexcept>

#include "machine/hidden_arguments.hpp"
#include "machine/workgroup.hpp"

namespace hk::emulator {
namespace {

// Kernel code properties.
enum : uint16_t {
  kPrivateSegmentBuffer = 1 << 0,
  kDispatchPtr = 1 << 1,
  kQueuePtr = 1 << 2,
  kKernargPtr = 1 << 3,
  kDispatchId = 1 << 4,
  kFlatScratchInit = 1 << 5,
  kPrivateSegmentSize = 1 << 6,
  kWave32 = 1 << 10,
};

uint32_t preload_dwords(const Kernel& k) { return k.kernarg_preload & 127; }
uint32_t preload_offset(const Kernel& k) { return k.kernarg_preload >> 7; }

// MODE by rsrc1: float round and denormal modes [19:12], DX10 clamp 21, IEEE 23.
uint32_t mode_of(uint32_t rsrc1) {
  return (rsrc1 >> 12 & 0xff) | (rsrc1 >> 21 & 1) << 8 | (rsrc1 >> 23 & 1) << 9;
}

class ScalarWriter {
 public:
  explicit ScalarWriter(WaveState& w) : w_(w) {}
  void add(uint32_t value) {
    w_.wave.sgpr[next_] = value;
    w_.scalar_written[next_ / 64] |= 1ull << next_ % 64;
    ++next_;
  }
  void add64(uint64_t value) {
    add(uint32_t(value));
    add(uint32_t(value >> 32));
  }

 private:
  WaveState& w_;
  int next_ = 0;
};

void set_scalars(WaveState& w, const Launch& launch, const Dim3& id) {
  const Kernel& k = *launch.kernel;
  ScalarWriter sgpr(w);
  if (k.properties & kDispatchPtr) sgpr.add64(launch.dispatch_packet);
  if (k.properties & kQueuePtr) sgpr.add64(address_of(Absent::queue));
  if (k.properties & kKernargPtr) sgpr.add64(launch.kernarg);
  if (k.properties & kDispatchId) sgpr.add64(0);
  if (k.properties & kPrivateSegmentSize) sgpr.add(k.scratch);
  for (uint32_t i = 0; i < preload_dwords(k); ++i) {
    uint32_t value = 0;
    const size_t at = (preload_offset(k) + i) * 4;
    if (at + 4 <= launch.kernarg_bytes.size())
      std::memcpy(&value, launch.kernarg_bytes.data() + at, 4);
    sgpr.add(value);
  }
  for (int axis = 0; axis < 3; ++axis)
    if (k.rsrc2 >> (7 + axis) & 1) sgpr.add(id[size_t(axis)]);
}

// Sets v0 to the work-item's x, y and z, 10 bits each; returns the lanes that have a work-item.
uint64_t set_work_items(WaveState& w, const Launch& launch) {
  const uint32_t bx = launch.block[0], by = launch.block[1], bz = launch.block[2];
  uint64_t lanes = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t item = w.index * kLanes + lane;
    if (item >= bx * by * bz) break;
    const uint32_t x = item % bx, y = item / bx % by, z = item / (bx * by);
    w.wave.vgpr[0][lane] = x | y << 10 | z << 20;
    lanes |= 1ull << lane;
  }
  return lanes;
}

}  // namespace

void check_descriptor(const Kernel& k) {
  auto refuse = [&](const std::string& what) {
    throw std::invalid_argument("kernel '" + k.name + "' needs " + what +
                                ", which the emulator does not provide");
  };
  if (k.properties & kPrivateSegmentBuffer) refuse("a private segment buffer");
  if (k.properties & kFlatScratchInit) refuse("a flat scratch setup in SGPRs");
  if (k.properties & kWave32) refuse("waves of 32 lanes");
  if (k.rsrc2 >> 10 & 1) refuse("the workgroup info SGPR");
  check_hidden_arguments(k);
}

// Index of the first instruction. With preloaded arguments the hardware skips the first 256 bytes,
// which load the arguments on older firmware.
uint32_t first_instruction(const Kernel& k) {
  const uint64_t at = k.entry + (preload_dwords(k) ? 256 : 0);
  const auto& table = *k.index_of_pc;
  if (at / 4 >= table.size() || table[at / 4] < 0)
    throw std::invalid_argument("kernel '" + k.name + "': no instruction at its entry point");
  return uint32_t(table[at / 4]);
}

void set_initial_state(WaveState& w, const Launch& launch, uint32_t workgroup) {
  const auto poison_rows = [&](int first, int count) {
    std::fill_n(w.wave.vgpr[first], std::min(count, 512 - first) * kLanes, kPoisonedRegister);
  };
  poison_rows(0, launch.used_vgprs);
  poison_rows(256, launch.used_agprs);
  std::fill(std::begin(w.wave.sgpr), std::end(w.wave.sgpr), kPoisonedRegister);
  w.wave.scc = false;
  w.wave.mode = mode_of(launch.kernel->rsrc1);
  w.wave.pc = first_instruction(*launch.kernel);
  w.ended = w.at_barrier = false;
  w.executed = 0;
  w.pending = w.recent_matrix = RegisterBits{};
  w.partial.fill();
  std::memset(w.written, 0, sizeof w.written);
  for (int i = 0; i < 2; ++i) w.scalar_written[i] = w.scalar_pending[i] = 0;
  w.saved_unwritten.clear();
  w.scc_written = false;
  w.recent = Recent{};
  w.waits.clear();
  w.order = {};

  const Dim3& grid = launch.grid;
  set_scalars(w, launch,
              {workgroup % grid[0], workgroup / grid[0] % grid[1], workgroup / grid[0] / grid[1]});
  w.lanes = set_work_items(w, launch);
  note_written(w, 0, w.lanes);
  w.wave.set_pair(kSgprExec, w.lanes);
  w.scalar_written[1] |= 3ull << (kSgprExec - 64);
  // flat_scratch is set up by the hardware; scratch instructions address it implicitly
  w.wave.set_pair(102, 0);
  w.scalar_written[1] |= 3ull << (102 - 64);
}

}  // namespace hk::emulator
