// Functions that only the emulator has: reset, options, mapped tensors, reasons, findings,
// counters.

#include <algorithm>
#include <string>
#include <thread>

#include "hip/hip_api.hpp"

using namespace hk::emulator;
using namespace hk::emulator::hip;

// Resets the library to `devices` devices of `arch` ("gfx942", "gfx950"); all handles become
// invalid.
EXPORT int hkEmulatedReset(const char* arch, int devices) {
  return call([&](Runtime& runtime) {
    const std::string name = arch ? arch : "";
    require((name == "gfx942" || name == "gfx950") && devices >= 0);
    runtime.reset(name == "gfx950" ? Arch::gfx950 : Arch::gfx942, devices);
  });
}

// Sets the options of all launches from now on. `threads` 0: one per core.
EXPORT int hkEmulatedOptions(uint64_t seed, int threads, int checks, uint64_t max_instructions,
                             int max_findings) {
  return call([&](Runtime& runtime) {
    require(threads >= 0 && max_instructions > 0 && max_findings > 0);
    if (!threads) threads = int(std::max(1u, std::thread::hardware_concurrency()));
    runtime.options = Options{seed, threads, checks != 0, max_instructions, max_findings};
  });
}

// Sets the behaviour of hipFuncSetAttribute. 1 (the default): it accepts functions of modules, and
// launches with more than 64 KiB of dynamic LDS need it. 0: it accepts only host functions, and no
// launch needs it.
EXPORT int hkEmulatedModuleAttributes(int known) {
  return call([&](Runtime& runtime) { runtime.module_attributes = known != 0; });
}

// Sets whether launches run (1, the default), or return at once and do nothing (0). With 0, a
// launch takes only its caller's time.
EXPORT int hkEmulatedLaunchesRun(int run) {
  return call([&](Runtime& runtime) { runtime.launches_run = run != 0; });
}

// Returns the number of calls of hipModuleLaunchKernel since the last reset.
EXPORT uint64_t hkEmulatedLaunchCalls() {
  Runtime& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  return runtime.launch_calls;
}

// Copies the line tables of the next module that will be loaded.
EXPORT int hkEmulatedLines(const void* lines, size_t bytes) {
  return call([&](Runtime& runtime) {
    require(lines && bytes);
    auto* first = static_cast<const std::byte*>(lines);
    runtime.lines.assign(first, first + bytes);
  });
}

// Maps host memory into the current device, with exact bounds and a name for findings. Unlike with
// hipHostRegister, ranges may overlap: each is a region of its own.
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

// Returns details of this thread's last error beyond its number; empty: there are none.
EXPORT const char* hkEmulatedWhy() { return why_last_failed.c_str(); }

// Returns findings and counters since the last hkEmulatedForgetReport as JSON (hip_report.hpp). The
// text is valid until this thread's next call.
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
