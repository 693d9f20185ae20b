// What only the emulator has: a fresh start, options, mapped tensors, reasons, findings, counters.

#include <algorithm>
#include <string>
#include <thread>

#include "hip/hip_api.hpp"

using namespace hk::emulator;
using namespace hk::emulator::hip;

// Starts anew with `devices` devices of `arch` ("gfx942", "gfx950"); all handles become invalid.
EXPORT int hkEmulatedReset(const char* arch, int devices) {
  return call([&](Runtime& runtime) {
    const std::string name = arch ? arch : "";
    require((name == "gfx942" || name == "gfx950") && devices >= 0);
    runtime.reset(name == "gfx950" ? Arch::gfx950 : Arch::gfx942, devices);
  });
}

// Of all launches from now on. `threads` 0: one per core.
EXPORT int hkEmulatedOptions(uint64_t seed, int threads, int checks, uint64_t max_instructions,
                             int max_findings) {
  return call([&](Runtime& runtime) {
    require(threads >= 0 && max_instructions > 0 && max_findings > 0);
    if (!threads) threads = int(std::max(1u, std::thread::hardware_concurrency()));
    runtime.options = Options{seed, threads, checks != 0, max_instructions, max_findings};
  });
}

// Whether hipFuncSetAttribute knows functions of modules, and a launch needs it above 64 KiB of
// dynamic LDS (1, as at first), or takes host functions only and no launch needs it (0).
EXPORT int hkEmulatedModuleAttributes(int known) {
  return call([&](Runtime& runtime) { runtime.module_attributes = known != 0; });
}

// Whether launches run (1, as at first), or return at once and do nothing (0): what is left of a
// launch is then its caller's.
EXPORT int hkEmulatedLaunchesRun(int run) {
  return call([&](Runtime& runtime) { runtime.launches_run = run != 0; });
}

// Calls of hipModuleLaunchKernel since the last reset.
EXPORT uint64_t hkEmulatedLaunchCalls() {
  Runtime& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  return runtime.launch_calls;
}

// The line tables of the next module that is loaded; copied.
EXPORT int hkEmulatedLines(const void* lines, size_t bytes) {
  return call([&](Runtime& runtime) {
    require(lines && bytes);
    auto* first = static_cast<const std::byte*>(lines);
    runtime.lines.assign(first, first + bytes);
  });
}

// Host memory as the current device's, with exact bounds and a name for findings. Unlike with
// hipHostRegister ranges may overlap: each is a region of its own.
EXPORT int hkEmulatedMap(void** pointer, void* host, size_t bytes, const char* name) {
  return call([&](Runtime& runtime) {
    require(pointer && host && bytes && name);
    *pointer = pointer_to(runtime.map(runtime.current(), host, bytes, name));
  });
}

EXPORT int hkEmulatedUnmap(void* pointer) {
  return call([&](Runtime& runtime) {
    Device& device = runtime.current();
    runtime.drain_all(device);
    runtime.unmap(device, address_of(pointer));
  });
}

// What the error number of this thread's last call does not say; empty where it says all.
EXPORT const char* hkEmulatedWhy() { return why_last_failed.c_str(); }

// Findings and counters since the last hkEmulatedForgetReport, as JSON (hip_report.hpp); valid
// until this thread's next call.
EXPORT const char* hkEmulatedReport() {
  static thread_local std::string text;
  Runtime& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  text = to_json(runtime.summary);
  return text.c_str();
}

EXPORT void hkEmulatedForgetReport() {
  Runtime& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  runtime.summary = {};
}
