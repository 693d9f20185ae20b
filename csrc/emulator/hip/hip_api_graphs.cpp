// Stream capture, graphs and their launches.

#include <algorithm>

#include "hip/hip_api.hpp"
#include "hip/hip_handles.hpp"

using namespace hk::emulator;
using namespace hk::emulator::hip;

EXPORT int hipStreamBeginCapture(void* stream, int mode) {
  return call([&](Runtime& runtime) {
    require(mode >= kCaptureGlobal && mode <= kCaptureRelaxed);
    runtime.captures.begin(runtime.stream(stream), CaptureMode(mode));
  });
}

EXPORT int hipStreamEndCapture(void* stream, void** graph) {
  return call([&](Runtime& runtime) {
    require(graph);
    *graph = nullptr;
    Nodes nodes = runtime.captures.end(runtime.stream(stream));
    *graph = &runtime.graphs.emplace_back(Graph{std::make_shared<Nodes>(std::move(nodes))});
  });
}

EXPORT int hipStreamGetCaptureInfo(void* handle, int* status, unsigned long long* id) {
  return call([&](Runtime& runtime) {
    require(status);
    Stream& stream = runtime.stream(handle);
    require(!runtime.captures.forbid(stream), kStreamCaptureImplicit);
    *status = runtime.captures.status(stream);
    if (id && *status == kCapturing) *id = stream.capture->id;
  });
}

EXPORT int hipStreamIsCapturing(void* stream, int* status) {
  return hipStreamGetCaptureInfo(stream, status, nullptr);
}

// Exchanges the mode that says which captures this thread's unsafe calls respect.
EXPORT int hipThreadExchangeStreamCaptureMode(int* mode) {
  return call([&](Runtime&) {
    require(mode && *mode >= kCaptureGlobal && *mode <= kCaptureRelaxed);
    *mode = std::exchange(Captures::thread_mode(), CaptureMode(*mode));
  });
}

EXPORT int hipGraphGetNodes(void* handle, void** nodes, size_t* count) {
  return call([&](Runtime& runtime) {
    require(handle && count);
    const Nodes& all = *known(runtime.graphs, handle, kInvalidValue).nodes;
    if (nodes)
      for (size_t i = 0; i < *count; ++i)
        nodes[i] = i < all.size() ? const_cast<Node*>(&all[i]) : nullptr;
    *count = nodes ? std::min(*count, all.size()) : all.size();
  });
}

EXPORT int hipGraphNodeGetType(void* handle, int* type) {
  return call([&](Runtime& runtime) {
    require(handle && type);
    for (const Graph& graph : runtime.graphs)
      for (const Node& node : *graph.nodes)
        if (&node == handle) return void(*type = node.type);
    throw Failure{kInvalidValue};
  });
}

EXPORT int hipGraphDestroy(void* handle) {
  return call([&](Runtime& runtime) {
    require(handle);
    known(runtime.graphs, handle, kIllegalState);
    runtime.graphs.erase(find_handle(runtime.graphs, handle));
  });
}

EXPORT int hipGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long flags) {
  return call([&](Runtime& runtime) {
    // 1: hipGraphInstantiateFlagAutoFreeOnLaunch, 8: hipGraphInstantiateFlagUseNodePriority
    require(executable && graph && (flags == 0 || flags == 1 || flags == 8));
    auto nodes = known(runtime.graphs, graph, kInvalidValue).nodes;
    *executable = &runtime.executables.emplace_back(Executable{std::move(nodes)});
  });
}

EXPORT int hipGraphInstantiate(void** executable, void* graph, void**, char*, size_t) {
  return hipGraphInstantiateWithFlags(executable, graph, 0);
}

EXPORT int hipGraphLaunch(void* handle, void* stream) {
  return call([&](Runtime& runtime) {
    auto nodes = known(runtime.executables, handle, kInvalidValue).nodes;
    runtime.enqueue(runtime.stream(stream), kGraphNode, [nodes] {
      for (const Node& node : *nodes) node.work();
    });
  });
}

EXPORT int hipGraphExecDestroy(void* handle) {
  return call([&](Runtime& runtime) {
    known(runtime.executables, handle, kInvalidValue);
    runtime.executables.erase(find_handle(runtime.executables, handle));
  });
}
