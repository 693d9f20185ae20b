// Streams and events.

#include "hip/hip_api.hpp"

using namespace hk::emulator;
using namespace hk::emulator::hip;

EXPORT int hipStreamCreateWithFlags(void** stream, unsigned flags) {
  return call([&](Runtime& runtime) {
    require(stream && flags <= 1);  // 1: hipStreamNonBlocking
    *stream = &runtime.create_stream(flags == 0);
  });
}

EXPORT int hipStreamCreate(void** stream) { return hipStreamCreateWithFlags(stream, 0); }

EXPORT int hipStreamDestroy(void* stream) {
  return call([&](Runtime& runtime) { runtime.destroy_stream(stream); });
}

EXPORT int hipStreamSynchronize(void* handle) {
  return call([&](Runtime& runtime) {
    Stream& stream = runtime.stream(handle);
    runtime.captures.waiting_for(stream);
    runtime.drain(stream);
    return runtime.synchronised(*stream.device);
  });
}

EXPORT int hipStreamQuery(void* handle) {
  return call([&](Runtime& runtime) {
    Stream& stream = runtime.stream(handle);
    runtime.captures.waiting_for(stream);
    return runtime.step(stream) ? kNotReady : kSuccess;
  });
}

EXPORT int hipStreamGetDevice(void* handle, int* index) {
  return call([&](Runtime& runtime) {
    require(index);
    *index = runtime.stream(handle).device->index;
  });
}

EXPORT int hipStreamWaitEvent(void* handle, void* event_handle, unsigned) {
  return call([&](Runtime& runtime) {
    Stream& stream = runtime.stream(handle);
    Event& event = runtime.event(event_handle);
    if (runtime.captures.wait(stream, event)) return;
    if (event.mark) runtime.wait_for(stream, event.mark);  // null: never recorded
  });
}

EXPORT int hipEventCreateWithFlags(void** event, unsigned) {
  return call([&](Runtime& runtime) {
    require(event);
    *event = &runtime.create_event();
  });
}

EXPORT int hipEventCreate(void** event) { return hipEventCreateWithFlags(event, 0); }

EXPORT int hipEventDestroy(void* event) {
  return call([&](Runtime& runtime) { runtime.destroy_event(event); });
}

EXPORT int hipEventRecord(void* event_handle, void* handle) {
  return call([&](Runtime& runtime) {
    Event& event = runtime.event(event_handle);
    Stream& stream = runtime.stream(handle);
    if (!runtime.captures.record(event, stream)) event.mark = runtime.mark(stream);
  });
}

EXPORT int hipEventQuery(void* handle) {
  return call([&](Runtime& runtime) {
    Event& event = runtime.event(handle);
    runtime.captures.waiting_for(event);
    auto mark = event.mark;
    if (!mark || mark->reached) return kSuccess;
    runtime.step(*mark->stream);
    return kNotReady;
  });
}

EXPORT int hipEventSynchronize(void* handle) {
  return call([&](Runtime& runtime) {
    Event& event = runtime.event(handle);
    runtime.captures.waiting_for(event);
    auto mark = event.mark;
    if (!mark) return kSuccess;
    if (!mark->reached) runtime.drain(*mark->stream, mark.get());
    return runtime.synchronised(runtime.current());
  });
}
