#include "machine/machine.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "checks/counters.hpp"
#include "memory/memory.hpp"
#include "machine/hidden_arguments.hpp"
#include "machine/prepared.hpp"
#include "machine/workgroup.hpp"

namespace hk::emulator {

struct Machine::Impl {
  Arch arch;
  Memory memory;
};

namespace {

// A mapped region that lives as long as a launch.
class Mapped {
 public:
  Mapped(Memory& memory, std::vector<std::byte> bytes, std::string name)
      : memory_(memory), bytes_(std::move(bytes)),
        address(memory.map(bytes_.data(), bytes_.size(), std::move(name))) {}
  ~Mapped() { memory_.unmap(address); }
  Mapped(const Mapped&) = delete;

 private:
  Memory& memory_;
  std::vector<std::byte> bytes_;

 public:
  const Address address;
};

// Makes the parts of an AQL kernel dispatch packet (HSA runtime specification) that kernels may
// read.
std::vector<std::byte> dispatch_packet(const Kernel& kernel, const Dim3& grid, const Dim3& block,
                                       size_t lds, Address kernarg) {
  std::vector<std::byte> packet(64);
  const auto put = [&](size_t at, auto value) { std::memcpy(&packet[at], &value, sizeof value); };
  put(2, uint16_t(3));
  for (size_t i = 0; i < 3; ++i) {
    put(4 + 2 * i, uint16_t(block[i]));
    put(12 + 4 * i, uint32_t(grid[i] * block[i]));
  }
  put(24, kernel.scratch);
  put(28, uint32_t(lds));
  put(40, kernarg);
  return packet;
}

void check_launch(Arch arch, const Kernel& kernel, const Dim3& grid, const Dim3& block, size_t lds,
                  std::span<const std::byte> kernarg, const Options& options) {
  const auto refuse = [&](const std::string& what) {
    throw std::invalid_argument("launch of '" + kernel.name + "': " + what);
  };
  if (kernel.arch != arch) refuse("the kernel is compiled for another arch than the machine's");
  const uint64_t threads = uint64_t(block[0]) * block[1] * block[2];
  const uint32_t most = kernel.max_block ? std::min(kernel.max_block, 1024u) : 1024u;
  if (threads == 0 || threads > most)
    refuse("block of " + std::to_string(threads) + " work-items; valid: 1 to " +
           std::to_string(most));
  const uint64_t workgroups = uint64_t(grid[0]) * grid[1] * grid[2];
  if (workgroups == 0 || workgroups >= 1ull << 31)
    refuse("grid of " + std::to_string(workgroups) + " workgroups; valid: 1 to 2^31 - 1");
  const size_t available = arch == Arch::gfx950 ? 160 * 1024 : 64 * 1024;
  if (lds > available)
    refuse(std::to_string(lds) + " bytes of LDS; the machine has " + std::to_string(available));
  const uint32_t declared = declared_bytes(kernel);
  if (kernarg.size() < declared)
    refuse(std::to_string(kernarg.size()) + " bytes of arguments; the kernel takes " +
           std::to_string(declared));
  if (options.threads < 1)
    refuse("threads = " + std::to_string(options.threads) + "; valid: 1 or more");
  check_descriptor(kernel);
}

}  // namespace

Machine::Machine(Arch arch) : impl_(std::make_unique<Impl>()) { impl_->arch = arch; }
Machine::~Machine() = default;
Arch Machine::arch() const { return impl_->arch; }

Address Machine::map(void* host, size_t bytes, std::string name) {
  return impl_->memory.map(host, bytes, std::move(name));
}
void Machine::unmap(Address address) { impl_->memory.unmap(address); }

namespace {

// A launch, with the memory that stays mapped while it runs.
class Dispatch {
 public:
  Dispatch(Memory& memory, std::shared_ptr<const Program> program, const Kernel& kernel, Dim3 grid,
           Dim3 block, size_t dynamic_lds, std::span<const std::byte> kernarg,
           const Options& options)
      : complete_(with_hidden_arguments(kernel, grid, block, dynamic_lds, kernarg)),
        arguments_(memory, complete_, "kernel arguments"),
        packet_(memory,
                dispatch_packet(kernel, grid, block, kernel.static_lds + dynamic_lds,
                                arguments_.address),
                "dispatch packet") {
    launch.kernel = &kernel;
    launch.lds_bytes = kernel.static_lds + dynamic_lds;
    launch.program = std::move(program);
    launch.memory = &memory;
    launch.synchronisation = &synchronisation_;
    launch.limits = RegisterLimits::of(kernel);
    launch.used_vgprs = std::max(launch.limits.vgprs, launch.program->vgprs);
    launch.used_agprs = std::max(launch.limits.agprs, launch.program->agprs);
    launch.grid = grid;
    launch.block = block;
    launch.kernarg_bytes = complete_;
    launch.options = options;
    launch.kernarg = arguments_.address;
    launch.dispatch_packet = packet_.address;
    launch.first_workgroup = memory.begin_launch(workgroups());
  }
  uint32_t workgroups() const { return launch.grid[0] * launch.grid[1] * launch.grid[2]; }

 private:
  std::vector<std::byte> complete_;  // the arguments, hidden ones included
  Mapped arguments_, packet_;
  Synchronisation synchronisation_;

 public:
  Launch launch;
};

// Order in which workgroups begin: by number (seed 0), or drawn at random from a seed.
std::vector<uint32_t> order_of(uint64_t seed, uint32_t count) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  if (seed != 0) std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  return order;
}

// Calls body(Workgroup&, i) for each i below `count`, on several threads, until it returns false.
// Then calls at_end(Workgroup&) once for each thread, one at a time.
template <class Body, class AtEnd>
void run_workgroups(const Launch& launch, uint32_t count, Body&& body, AtEnd&& at_end) {
  std::atomic<uint32_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      Workgroup group(launch);
      for (uint32_t i; (i = next.fetch_add(1)) < count;)
        if (!body(group, i)) next = count;  // stops all threads
      std::lock_guard lock(mutex);
      at_end(group);
    } catch (...) {
      next = count;
      std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  };
  const uint32_t threads = std::min<uint32_t>(uint32_t(launch.options.threads), count);
  std::vector<std::thread> pool;
  for (uint32_t i = 1; i < threads; ++i) pool.emplace_back(work);
  work();
  for (std::thread& t : pool) t.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace

Report Machine::launch(const Kernel& kernel, Dim3 grid, Dim3 block, size_t dynamic_lds,
                       std::span<const std::byte> kernarg, const Options& options) {
  check_launch(impl_->arch, kernel, grid, block, kernel.static_lds + dynamic_lds, kernarg, options);
  const Dispatch dispatch(impl_->memory, prepared(kernel), kernel, grid, block, dynamic_lds,
                          kernarg, options);
  std::vector<Finding> findings;
  std::vector<Counts> counts;
  const std::vector<uint32_t> order = order_of(options.seed, dispatch.workgroups());
  run_workgroups(
      dispatch.launch, dispatch.workgroups(),
      [&](Workgroup& group, uint32_t i) { return group.run(order[i]); },
      [&](Workgroup& group) {
        for (Finding& f : group.findings.take()) findings.push_back(std::move(f));
        counts.push_back(std::move(group.counts));
      });
  Report report;
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.workgroup < b.workgroup; });
  if (findings.size() > size_t(options.max_findings)) findings.resize(size_t(options.max_findings));
  report.findings = std::move(findings);
  report.counters = make_counters(dispatch.launch, counts);
  return report;
}

Trace Machine::trace(const Kernel& kernel, Dim3 grid, Dim3 block, size_t dynamic_lds,
                     std::span<const std::byte> kernarg, std::span<const uint32_t> workgroups,
                     const Options& options) {
  check_launch(impl_->arch, kernel, grid, block, kernel.static_lds + dynamic_lds, kernarg, options);
  Options unchecked = options;
  unchecked.checks = false;
  const Dispatch dispatch(impl_->memory, prepared(kernel), kernel, grid, block, dynamic_lds,
                          kernarg, unchecked);
  for (const uint32_t w : workgroups)
    if (w >= dispatch.workgroups())
      throw std::invalid_argument("trace of '" + kernel.name + "': workgroup " + std::to_string(w) +
                                  " of a grid of " + std::to_string(dispatch.workgroups()));
  Trace trace{dispatch.launch.program, kernel.vgprs + kernel.agprs, dispatch.launch.lds_bytes, {}};
  trace.workgroups.resize(workgroups.size());
  std::vector<std::vector<Recorder::Fetch>> fetches(workgroups.size());
  std::vector<Finding> findings;
  run_workgroups(
      dispatch.launch, uint32_t(workgroups.size()),
      [&](Workgroup& group, uint32_t i) {
        Recorder recorder(workgroups[i], group.waves.size());
        group.recorder = &recorder;
        const bool done = group.run(workgroups[i]);
        trace.workgroups[i] = recorder.take();
        fetches[i] = recorder.fetches();
        return done;
      },
      [&](Workgroup& group) {
        for (Finding& f : group.findings.take()) findings.push_back(std::move(f));
      });
  if (!findings.empty()) throw std::runtime_error("trace: " + findings.front().message);
  mark_shared(trace.workgroups, fetches);
  return trace;
}

}  // namespace hk::emulator
