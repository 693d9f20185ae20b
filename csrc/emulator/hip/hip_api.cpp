// libamdhip64's C interface on the emulator: the functions that host programs of our kernels call.
//
// Names, numbers and layouts are those of ROCm's library, so that one launch path runs on both. A
// device's work runs when something waits for it (hip_runtime.hpp). This file has devices and
// errors. Files hip_api_*.cpp have memory, streams and events, graphs, modules and launches, and
// functions that only the emulator has.

#include <utility>

#include "hip/hip_api.hpp"

using namespace hk::emulator;
using namespace hk::emulator::hip;

EXPORT int hipInit(unsigned flags) {
  return call([&](Runtime&) { require(flags == 0); });
}

EXPORT int hipDriverGetVersion(int* version) {
  return call([&](Runtime&) {
    require(version);
    *version = 70000000;  // major * 10'000'000 + minor * 100'000 + patch
  });
}

EXPORT int hipRuntimeGetVersion(int* version) { return hipDriverGetVersion(version); }

EXPORT int hipGetDeviceCount(int* count) {
  return call([&](Runtime& runtime) {
    require(count);
    *count = runtime.device_count();
  });
}

EXPORT int hipGetDevice(int* index) {
  return call([&](Runtime& runtime) {
    require(index);
    *index = runtime.current_index();
  });
}

EXPORT int hipSetDevice(int index) {
  return call([&](Runtime& runtime) {
    runtime.device(index);
    runtime.current_index() = index;
  });
}

EXPORT int hipGetDevicePropertiesR0600(DeviceProperties* properties, int index) {
  return call([&](Runtime& runtime) {
    require(properties);
    *properties = properties_of(runtime.device(index).machine.arch());
  });
}

EXPORT int hipDeviceGetAttribute(int* value, int attribute, int index) {
  return call([&](Runtime& runtime) {
    require(value);
    const DeviceProperties p = properties_of(runtime.device(index).machine.arch());
    switch (attribute) {
      case kMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
      case kMultiprocessorCount: *value = p.multiProcessorCount; break;
      case kMaxSharedMemoryPerBlock: *value = int(p.sharedMemPerBlock); break;
      case kMaxSharedMemoryPerMultiprocessor: *value = int(p.sharedMemPerMultiprocessor); break;
      case kWarpSize: *value = p.warpSize; break;
      case kNumberOfXccs: *value = 8; break;
      default: throw Failure{kInvalidValue};
    }
  });
}

EXPORT int hipDeviceSynchronize() {
  return call([&](Runtime& runtime) {
    runtime.captures.waiting_for_the_device();
    runtime.drain_all(runtime.current());
    return runtime.synchronised(runtime.current());
  });
}

EXPORT const char* hipGetErrorName(int error) { return describe(error).name; }
EXPORT const char* hipGetErrorString(int error) { return describe(error).text; }
EXPORT int hipPeekAtLastError() { return last_error; }
EXPORT int hipGetLastError() { return std::exchange(last_error, kSuccess); }
