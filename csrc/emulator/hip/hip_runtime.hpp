// State behind the HIP functions: devices, memory, streams, events, modules.
//
// A stream is a queue that runs only when something waits for it. A host that reads a result too
// early, frees memory too early or relies on a synchronous launch therefore always fails here, not
// just sometimes. Queries let one piece of queued work finish, so that polling ends.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hip/hip_capture.hpp"
#include "hip/hip_graph.hpp"
#include "hip/hip_types.hpp"
#include "machine/machine.hpp"
#include "hip/hip_report.hpp"

namespace hk::emulator::hip {

inline constexpr size_t kDynamicLdsWithoutAttribute = 64 * 1024;

struct Device;

struct Stream {
  Device* device;
  bool blocking = true;  // whether it waits for the null stream, and that for it
  std::deque<std::function<void()>> work;
  std::shared_ptr<Capture> capture = {};  // capture that it is part of
};

struct Event {
  struct Mark {
    Stream* stream;
    bool reached = false;
  };
  std::shared_ptr<Mark> mark;  // mark of the latest record; null: none yet, or in a capture
  CapturedEvent captured;      // latest record, if it was in a capture
};

struct Module;

struct Function {
  Module* module;
  const Kernel* kernel;
  size_t max_dynamic_lds = kDynamicLdsWithoutAttribute;
};

struct Module {
  Device* device;
  std::shared_ptr<CodeObject> object;
  std::list<Function> functions;
};

struct Region {
  std::byte* host;
  size_t bytes;
  std::unique_ptr<std::byte[]> owned;  // memory of hipMalloc; null: the host's own memory
};

struct Device {
  Device(int index, Machine& machine) : index(index), machine(machine) {}
  int index;
  Machine& machine;  // shared by all devices: addresses are unique in a process
  Stream null_stream{this, true, {}};
  std::list<Stream> streams;
  std::map<Address, Region> memory;
  std::map<void*, Address> registered;  // by hipHostRegister
  Failure pending{kSuccess};            // failure of work since the last synchronising call
};

class Runtime {
 public:
  static Runtime& instance();
  std::recursive_mutex mutex;  // held by every function of the interface
  Options options;
  bool module_attributes = true;  // whether hipFuncSetAttribute knows functions of modules
  bool launches_run = true;       // false: a launch returns at once, and nothing runs
  uint64_t launch_calls = 0;      // calls of hipModuleLaunchKernel since the last reset
  Summary summary;
  Captures captures;
  std::list<Graph> graphs;
  std::list<Executable> executables;
  std::vector<std::byte> lines;  // line tables of the next module; empty: none

  // Forgets devices, memory, modules and reports, and creates new devices.
  void reset(Arch arch, int device_count);
  Device& device(int index);
  Device& current() { return device(current_index()); }
  static int& current_index();  // per thread, as in HIP
  int device_count() const { return int(devices_.size()); }

  Address map(Device& device, void* host, size_t bytes, const std::string& name,
              std::unique_ptr<std::byte[]> owned = nullptr);
  void unmap(Device& device, Address address);
  // Returns the host memory behind [pointer, pointer + bytes), a device's or the host's own.
  std::byte* resolve(const void* pointer, size_t bytes, bool must_be_device);

  Stream& stream(void* handle);  // null: the current device's null stream
  Stream& create_stream(bool blocking);
  void destroy_stream(void* handle);
  // Enqueues `work`, which may run many times in a graph. What it throws becomes its device's
  // pending failure.
  void enqueue(Stream& stream, NodeType type, std::function<void()> work);
  std::shared_ptr<Event::Mark> mark(Stream& stream);  // reached when all work queued now has run
  void wait_for(Stream& stream, std::shared_ptr<Event::Mark> mark);
  void drain(Stream& stream, const Event::Mark* until = nullptr);
  void drain_all(Device& device);
  bool step(Stream& stream);           // runs one piece of work; returns whether there was any
  Error synchronised(Device& device);  // counts the call; clears the pending failure and throws it

  Event& event(void* handle);
  Event& create_event();
  void destroy_event(void* handle);

  Module& load_module(const void* image);
  void unload_module(void* handle);
  Function& function(const void* handle);
  Function& function(void* module, const std::string& name);
  void launch(Function& function, Dim3 grid, Dim3 block, size_t dynamic_lds, Stream& stream,
              std::vector<std::byte> kernarg);

 private:
  Runtime();
  std::unique_ptr<Machine> machine_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::list<Event> events_;
  std::list<Module> modules_;
};

DeviceProperties properties_of(Arch arch);

}  // namespace hk::emulator::hip
