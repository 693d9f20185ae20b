// Device memory, registered host memory, copies.

#include <cstring>
#include <iterator>
#include <memory>

#include "hip/hip_api.hpp"

using namespace hk::emulator;
using namespace hk::emulator::hip;

namespace {

// Memory that a copy or a fill touches. It is looked up again when the work runs, since a graph may
// outlive the memory.
class Bytes {
 public:
  Bytes(Runtime& runtime, const void* pointer, size_t bytes, bool must_be_device = true)
      : runtime_(runtime), pointer_(pointer), bytes_(bytes),
        on_device_(runtime.resolve(pointer, bytes, must_be_device) != pointer) {}
  std::byte* now() const {
    try {
      return runtime_.resolve(pointer_, bytes_, on_device_);
    } catch (const Failure&) {
      throw Failure{kIllegalAddress, "memory of a graph's copy was freed"};
    }
  }

 private:
  Runtime& runtime_;
  const void* pointer_;
  size_t bytes_;
  bool on_device_;
};

void copy(Runtime& runtime, Stream& stream, void* to, const void* from, size_t bytes, int kind) {
  require(kind >= kHostToHost && kind <= kDefault, kInvalidMemcpyDirection);
  const Bytes target(runtime, to, bytes, kind == kHostToDevice || kind == kDeviceToDevice);
  const Bytes source(runtime, from, bytes, kind == kDeviceToHost || kind == kDeviceToDevice);
  runtime.enqueue(stream, kMemcpyNode, [=] { std::memmove(target.now(), source.now(), bytes); });
}

void fill(Runtime& runtime, Stream& stream, void* to, int value, size_t bytes) {
  const Bytes target(runtime, to, bytes);
  runtime.enqueue(stream, kMemsetNode, [=] { std::memset(target.now(), value, bytes); });
}

}  // namespace

EXPORT int hipMalloc(void** pointer, size_t bytes) {
  return call([&](Runtime& runtime) {
    runtime.captures.unsafe_call();
    require(pointer);
    *pointer = nullptr;
    if (!bytes) return;
    auto memory = std::make_unique<std::byte[]>(bytes);
    void* host = memory.get();
    std::memset(host, 0xff, bytes);  // NaN in every format, so that unwritten memory shows
    *pointer =
        pointer_to(runtime.map(runtime.current(), host, bytes, "hipMalloc", std::move(memory)));
  });
}

EXPORT int hipFree(void* pointer) {
  return call([&](Runtime& runtime) {
    runtime.captures.unsafe_call();
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
    runtime.captures.unsafe_call();
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
    runtime.captures.unsafe_call();
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
  return call(
      [&](Runtime& runtime) { copy(runtime, runtime.stream(stream), to, from, bytes, kind); });
}

EXPORT int hipMemcpy(void* to, const void* from, size_t bytes, int kind) {
  return call([&](Runtime& runtime) {
    runtime.captures.synchronous_copy();
    Stream& stream = runtime.stream(nullptr);
    copy(runtime, stream, to, from, bytes, kind);
    runtime.drain(stream);
    return runtime.synchronised(*stream.device);
  });
}

EXPORT int hipMemsetAsync(void* to, int value, size_t bytes, void* stream) {
  return call([&](Runtime& runtime) { fill(runtime, runtime.stream(stream), to, value, bytes); });
}

EXPORT int hipMemset(void* to, int value, size_t bytes) {
  return call([&](Runtime& runtime) {
    runtime.captures.synchronous_copy();
    Stream& stream = runtime.stream(nullptr);
    fill(runtime, stream, to, value, bytes);
    runtime.drain(stream);
    return runtime.synchronised(*stream.device);
  });
}
