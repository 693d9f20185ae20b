#include "machine/machine.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "checks/counters.hpp"
#include "memory/memory.hpp"
#include "machine/prepared.hpp"
#include "machine/workgroup.hpp"

namespace hk::emulator {

struct Machine::Impl {
  Arch arch;
  Memory memory;
  std::mutex mutex;
  std::vector<std::shared_ptr<const Program>> programs;

  // Prepared once per code object.
  std::shared_ptr<const Program> program(const Kernel& kernel) {
    std::lock_guard lock(mutex);
    for (const auto& p : programs)
      if (p->text == kernel.text) return p;
    constexpr size_t kKept = 64;
    if (programs.size() == kKept) programs.erase(programs.begin());
    programs.push_back(prepare(kernel));
    return programs.back();
  }
};

namespace {

// A region that lives as long as a launch.
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

// The AQL kernel dispatch packet (HSA runtime specification), as far as a kernel may read it.
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
  if (kernarg.size() < kernel.kernarg_size)
    refuse(std::to_string(kernarg.size()) + " bytes of arguments; the kernel takes " +
           std::to_string(kernel.kernarg_size));
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

Report Machine::launch(const Kernel& kernel, Dim3 grid, Dim3 block, size_t dynamic_lds,
                       std::span<const std::byte> kernarg, const Options& options) {
  Launch launch;
  launch.kernel = &kernel;
  launch.lds_bytes = kernel.static_lds + dynamic_lds;
  check_launch(impl_->arch, kernel, grid, block, launch.lds_bytes, kernarg, options);
  const uint32_t workgroups = grid[0] * grid[1] * grid[2];
  launch.program = impl_->program(kernel);
  launch.memory = &impl_->memory;
  launch.limits = RegisterLimits::of(kernel);
  launch.grid = grid;
  launch.block = block;
  launch.kernarg_bytes = kernarg;
  launch.options = options;
  const Mapped arguments(impl_->memory, {kernarg.begin(), kernarg.end()}, "kernel arguments");
  launch.kernarg = arguments.address;
  const Mapped packet(impl_->memory,
                      dispatch_packet(kernel, grid, block, launch.lds_bytes, launch.kernarg),
                      "dispatch packet");
  launch.dispatch_packet = packet.address;
  launch.first_workgroup = impl_->memory.begin_launch(workgroups);

  std::atomic<uint32_t> next{0};
  std::mutex mutex;
  std::vector<Finding> findings;
  std::vector<Counts> counts;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      Workgroup group(launch);
      for (uint32_t i; (i = next.fetch_add(1)) < workgroups;)
        if (!group.run(i)) next = workgroups;  // no sense in going on
      std::lock_guard lock(mutex);
      for (Finding& f : group.findings.take()) findings.push_back(std::move(f));
      counts.push_back(std::move(group.counts));
    } catch (...) {
      next = workgroups;
      std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  };
  const uint32_t threads = std::min<uint32_t>(uint32_t(options.threads), workgroups);
  std::vector<std::thread> pool;
  for (uint32_t i = 1; i < threads; ++i) pool.emplace_back(work);
  work();
  for (std::thread& t : pool) t.join();
  if (error) std::rethrow_exception(error);

  Report report;
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.workgroup < b.workgroup; });
  if (findings.size() > size_t(options.max_findings)) findings.resize(size_t(options.max_findings));
  report.findings = std::move(findings);
  report.counters = make_counters(launch, counts);
  return report;
}

}  // namespace hk::emulator
