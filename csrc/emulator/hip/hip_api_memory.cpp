// Device memory, registered host memory, copies.

#include <cstring>
#include <iterator>
#include <memory>

#include "hip/hip_api.hpp"

using namespace hk::emulator;
using namespace hk::emulator::hip;

namespace {

struct Copy {
  std::byte *to, *from;
  size_t bytes;
  void operator()() const { std::memmove(to, from, bytes); }
};

Copy resolved_copy(Runtime& runtime, void* to, const void* from, size_t bytes, int kind) {
  require(kind >= kHostToHost && kind <= kDefault, kInvalidMemcpyDirection);
  const bool to_device = kind == kHostToDevice || kind == kDeviceToDevice;
  const bool from_device = kind == kDeviceToHost || kind == kDeviceToDevice;
  return {runtime.resolve(to, bytes, to_device), runtime.resolve(from, bytes, from_device), bytes};
}

}  // namespace

EXPORT int hipMalloc(void** pointer, size_t bytes) {
  return call([&](Runtime& runtime) {
    require(pointer);
    *pointer = nullptr;
    if (!bytes) return;
    auto memory = std::make_unique<std::byte[]>(bytes);
    void* host = memory.get();
    std::memset(host, 0xff, bytes);  // NaN in every format: what was not written shows
    *pointer =
        pointer_to(runtime.map(runtime.current(), host, bytes, "hipMalloc", std::move(memory)));
  });
}

EXPORT int hipFree(void* pointer) {
  return call([&](Runtime& runtime) {
    if (!pointer) return kSuccess;
    for (int i = 0; i < runtime.device_count(); ++i) {
      Device& device = runtime.device(i);
      auto found = device.memory.find(address_of(pointer));
      if (found == device.memory.end() || !found->second.owned) continue;
      runtime.drain_all(device);  // freeing waits for the device
      runtime.unmap(device, found->first);
      return runtime.synchronised(device);
    }
    throw Failure{kInvalidValue};
  });
}

EXPORT int hipHostRegister(void* host, size_t bytes, unsigned) {
  return call([&](Runtime& runtime) {
    require(host && bytes);
    Device& device = runtime.current();
    for (auto& [other, address] : device.registered) {
      const Address start = address_of(other), end = start + device.memory[address].bytes;
      require(address_of(host) + bytes <= start || address_of(host) >= end,
              kHostMemoryAlreadyRegistered);
    }
    device.registered[host] = runtime.map(device, host, bytes, "hipHostRegister");
  });
}

EXPORT int hipHostGetDevicePointer(void** pointer, void* host, unsigned flags) {
  return call([&](Runtime& runtime) {
    require(pointer && host && flags == 0);
    Device& device = runtime.current();
    auto after = device.registered.upper_bound(host);
    require(after != device.registered.begin());
    auto& [start, address] = *std::prev(after);
    const size_t offset = address_of(host) - address_of(start);
    require(offset < device.memory[address].bytes);
    *pointer = pointer_to(address + offset);
  });
}

EXPORT int hipHostUnregister(void* host) {
  return call([&](Runtime& runtime) {
    Device& device = runtime.current();
    auto found = device.registered.find(host);
    require(found != device.registered.end(), kHostMemoryNotRegistered);
    runtime.drain_all(device);
    runtime.unmap(device, found->second);
    device.registered.erase(found);
    return runtime.synchronised(device);
  });
}

EXPORT int hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  return call([&](Runtime& runtime) {
    runtime.enqueue(runtime.stream(stream), resolved_copy(runtime, to, from, bytes, kind));
  });
}

EXPORT int hipMemcpy(void* to, const void* from, size_t bytes, int kind) {
  return call([&](Runtime& runtime) {
    Stream& stream = runtime.stream(nullptr);
    runtime.enqueue(stream, resolved_copy(runtime, to, from, bytes, kind));
    runtime.drain(stream);
    return runtime.synchronised(*stream.device);
  });
}

EXPORT int hipMemsetAsync(void* to, int value, size_t bytes, void* stream) {
  return call([&](Runtime& runtime) {
    std::byte* host = runtime.resolve(to, bytes, true);
    runtime.enqueue(runtime.stream(stream), [=] { std::memset(host, value, bytes); });
  });
}

EXPORT int hipMemset(void* to, int value, size_t bytes) {
  if (int error = hipMemsetAsync(to, value, bytes, nullptr)) return error;
  return call([&](Runtime& runtime) {
    runtime.drain(runtime.stream(nullptr));
    return runtime.synchronised(runtime.current());
  });
}
