#include "hip/hip_runtime.hpp"

#include "hip/hip_handles.hpp"

#include <algorithm>
#include <cstring>

namespace hk::emulator::hip {
namespace {

// Reads an image's arch and size from its ELF64 header, since the interface passes no size (LLVM
// AMDGPU usage, "ELF Code Object").
struct Image {
  explicit Image(const void* image) : bytes(static_cast<const std::byte*>(image)) {
    static constexpr unsigned char kElf64[] = {0x7f, 'E', 'L', 'F', 2, 1};
    if (std::memcmp(bytes, kElf64, sizeof kElf64) != 0) throw Failure{kInvalidImage};
    if (field<uint16_t>(18) != 224) throw Failure{kInvalidImage};  // EM_AMDGPU
  }
  template <class T>
  T field(size_t offset) const {
    T value;
    std::memcpy(&value, bytes + offset, sizeof value);
    return value;
  }
  bool is(Arch arch) const {
    const uint32_t mach = field<uint32_t>(48) & 0xff;  // EF_AMDGPU_MACH
    return mach == (arch == Arch::gfx950 ? 0x4fu : 0x4cu);
  }
  // Size of the image: the linker puts the section headers last.
  size_t size() const {
    return field<uint64_t>(40) + size_t(field<uint16_t>(58)) * field<uint16_t>(60);
  }
  const std::byte* bytes;
};

}  // namespace

Runtime& Runtime::instance() {
  static Runtime runtime;
  return runtime;
}

Runtime::Runtime() { reset(Arch::gfx950, 1); }

void Runtime::reset(Arch arch, int device_count) {
  captures = {};
  graphs.clear();
  executables.clear();
  modules_.clear();
  events_.clear();
  devices_.clear();
  machine_ = std::make_unique<Machine>(arch);
  for (int i = 0; i < device_count; ++i) devices_.push_back(std::make_unique<Device>(i, *machine_));
  summary = {};
  options = {};
  module_attributes = launches_run = true;
  launch_calls = 0;
  current_index() = 0;
}

int& Runtime::current_index() {
  static thread_local int index = 0;
  return index;
}

Device& Runtime::device(int index) {
  if (index < 0 || index >= device_count()) throw Failure{kInvalidDevice};
  return *devices_[index];
}

Address Runtime::map(Device& device, void* host, size_t bytes, const std::string& name,
                     std::unique_ptr<std::byte[]> owned) {
  const Address address = device.machine.map(host, bytes, name);
  device.memory[address] = Region{static_cast<std::byte*>(host), bytes, std::move(owned)};
  return address;
}

void Runtime::unmap(Device& device, Address address) {
  if (!device.memory.erase(address)) throw Failure{kInvalidValue};
  device.machine.unmap(address);
}

std::byte* Runtime::resolve(const void* pointer, size_t bytes, bool must_be_device) {
  const Address address = reinterpret_cast<Address>(pointer);
  for (auto& device : devices_) {
    auto after = device->memory.upper_bound(address);
    if (after == device->memory.begin()) continue;
    auto& [start, region] = *std::prev(after);
    if (address >= start + region.bytes) continue;
    if (bytes > start + region.bytes - address) throw Failure{kInvalidValue};
    return region.host + (address - start);
  }
  if (must_be_device) throw Failure{kInvalidValue};
  return static_cast<std::byte*>(const_cast<void*>(pointer));
}

Stream& Runtime::stream(void* handle) {
  if (!handle) return current().null_stream;
  for (auto& device : devices_)
    if (auto found = find_handle(device->streams, handle); found != device->streams.end())
      return *found;
  throw Failure{kContextIsDestroyed};  // HIP's error for a stream of another runtime
}

Stream& Runtime::create_stream(bool blocking) {
  return current().streams.emplace_back(Stream{&current(), blocking, {}});
}

void Runtime::destroy_stream(void* handle) {
  Stream& gone = stream(handle);
  if (!handle) throw Failure{kInvalidHandle};
  captures.forget(gone);
  drain(gone);
  auto& streams = gone.device->streams;
  streams.erase(find_handle(streams, handle));
}

std::shared_ptr<Event::Mark> Runtime::mark(Stream& stream) {
  auto mark = std::make_shared<Event::Mark>(Event::Mark{&stream});
  stream.work.push_back([mark] { mark->reached = true; });
  return mark;
}

void Runtime::wait_for(Stream& stream, std::shared_ptr<Event::Mark> mark) {
  stream.work.push_back([this, mark = std::move(mark)] {
    if (!mark->reached) drain(*mark->stream, mark.get());
  });
}

// Work of the null stream runs after earlier work of all blocking streams, and theirs after it.
void Runtime::enqueue(Stream& stream, NodeType type, std::function<void()> work) {
  if (Capture* capture = captures.active(stream)) return capture->record(stream, {type, work});
  Stream& null = stream.device->null_stream;
  if (&stream == &null) {
    for (Stream& other : stream.device->streams)
      if (other.blocking && !other.work.empty()) wait_for(stream, mark(other));
  } else if (stream.blocking && !null.work.empty()) {
    wait_for(stream, mark(null));
  }
  stream.work.push_back(std::move(work));
}

bool Runtime::step(Stream& stream) {
  if (stream.work.empty()) return false;
  auto work = std::move(stream.work.front());
  stream.work.pop_front();
  try {
    work();
  } catch (const Failure& failure) {
    if (!stream.device->pending.error) stream.device->pending = failure;
  }
  return true;
}

void Runtime::drain(Stream& stream, const Event::Mark* until) {
  while (!(until && until->reached) && step(stream)) {
  }
}

void Runtime::drain_all(Device& device) {
  drain(device.null_stream);
  for (Stream& stream : device.streams) drain(stream);
}

Error Runtime::synchronised(Device& device) {
  summary.synchronising_calls += 1;
  if (Failure failed = std::exchange(device.pending, {kSuccess}); failed.error) throw failed;
  return kSuccess;
}

Event& Runtime::event(void* handle) { return known(events_, handle); }
Event& Runtime::create_event() { return events_.emplace_back(); }
void Runtime::destroy_event(void* handle) {
  known(events_, handle);
  events_.erase(find_handle(events_, handle));
}

Module& Runtime::load_module(const void* bytes) {
  const Image image(bytes);
  if (!image.is(current().machine.arch())) throw Failure{kNoBinaryForGpu};
  try {
    auto object = CodeObject::load({image.bytes, image.size()}, std::exchange(lines, {}));
    return modules_.emplace_back(Module{&current(), std::move(object), {}});
  } catch (const LoadError& error) {
    throw Failure{kInvalidImage, error.what()};
  }
}

void Runtime::unload_module(void* handle) {
  Module& module = known(modules_, handle);
  drain_all(*module.device);
  modules_.erase(find_handle(modules_, handle));
}

Function& Runtime::function(const void* handle) {
  for (Module& module : modules_)
    if (auto found = find_handle(module.functions, handle); found != module.functions.end())
      return *found;
  throw Failure{kInvalidHandle};
}

Function& Runtime::function(void* handle, const std::string& name) {
  Module& module = known(modules_, handle);
  for (Function& function : module.functions)
    if (function.kernel->name == name) return function;
  for (const Kernel& kernel : module.object->kernels())
    if (kernel.name == name) return module.functions.emplace_back(Function{&module, &kernel});
  throw Failure{kNotFound};
}

void Runtime::launch(Function& function, Dim3 grid, Dim3 block, size_t dynamic_lds, Stream& stream,
                     std::vector<std::byte> kernarg) {
  const Kernel& kernel = *function.kernel;
  Device& device = *stream.device;
  const size_t threads = size_t(block[0]) * block[1] * block[2];
  if (!grid[0] || !grid[1] || !grid[2] || !threads || threads > 1024)
    throw Failure{kInvalidConfiguration};
  if (threads > kernel.max_block) throw Failure{kLaunchFailure};  // exceeds its launch bounds
  if (kernarg.size() < kernel.kernarg_size) throw Failure{kInvalidValue};
  if (function.module->device != &device) throw Failure{kInvalidDevice};
  const size_t lds = properties_of(device.machine.arch()).sharedMemPerBlock;
  if (kernel.static_lds + dynamic_lds > lds) throw Failure{kInvalidValue};
  if (module_attributes && dynamic_lds > function.max_dynamic_lds) throw Failure{kInvalidValue};
  auto run = [this, &device, &kernel, grid, block, dynamic_lds, object = function.module->object,
              kernarg = std::move(kernarg)] {
    Report report;
    try {
      report = device.machine.launch(kernel, grid, block, dynamic_lds, kernarg, options);
    } catch (const std::exception& error) {  // the machine cannot run the launch at all
      Finding finding;
      finding.check = "launch";
      finding.kernel = kernel.name;
      finding.message = finding.check + ": " + error.what() + "; in " + finding.kernel;
      report.findings.push_back(finding);
    }
    if (!report.findings.empty() && !device.pending.error)
      device.pending = {kLaunchFailure, report.findings.front().message};
    summary.add(kernel.name, report);
  };
  enqueue(stream, kKernelNode, std::move(run));
}

DeviceProperties properties_of(Arch arch) {
  const bool gfx950 = arch == Arch::gfx950;
  DeviceProperties p = {};
  std::strcpy(p.name, gfx950 ? "AMD Instinct MI355X (emulated)" : "AMD Instinct MI300X (emulated)");
  std::strcpy(p.gcnArchName, gfx950 ? "gfx950:sramecc+:xnack-" : "gfx942:sramecc+:xnack-");
  p.totalGlobalMem = size_t(gfx950 ? 288 : 192) << 30;
  p.sharedMemPerBlock = size_t(gfx950 ? 160 : 64) << 10;
  p.sharedMemPerMultiprocessor = p.maxSharedMemoryPerMultiProcessor = p.sharedMemPerBlock;
  p.regsPerBlock = 65536;
  p.warpSize = 64;
  p.maxThreadsPerBlock = 1024;
  for (int i = 0; i < 3; ++i) p.maxThreadsDim[i] = 1024;
  p.maxGridSize[0] = 0x7fffffff;
  p.maxGridSize[1] = p.maxGridSize[2] = 65536;
  p.clockRate = gfx950 ? 2400000 : 2100000;
  p.major = 9;
  p.minor = gfx950 ? 5 : 4;
  p.multiProcessorCount = gfx950 ? 256 : 304;
  p.l2CacheSize = 4 << 20;
  p.maxThreadsPerMultiProcessor = 2048;
  return p;
}

}  // namespace hk::emulator::hip
