#include "library.hpp"

#include <dlfcn.h>

#include <limits>
#include <stdexcept>

namespace hk::hip {
namespace {

constexpr int kInvalidDeviceFunction = 98;
constexpr int kStreamCaptureImplicit = 906;
constexpr int kMultiprocessorCount = 63;  // hipDeviceAttributeMultiprocessorCount
constexpr int kMaxDynamicLds = 8;         // hipFuncAttributeMaxDynamicSharedMemorySize
// Layout of hipDeviceProp_tR0600 (HIP 6 and 7).
constexpr size_t kPropertiesBytes = 1472, kArchNameOffset = 1160;
// Keys in the `extra` argument of hipModuleLaunchKernel.
void* const kParamBufferPointer = reinterpret_cast<void*>(1);
void* const kParamBufferSize = reinterpret_cast<void*>(2);
void* const kParamEnd = reinterpret_cast<void*>(3);

// Handle of a mapped library; null if `path` is not mapped.
void* mapped(const std::string& path) { return dlopen(path.c_str(), RTLD_NOLOAD | RTLD_LAZY); }

}  // namespace

std::string runtime_of(const std::string& user) {
  void* handle = mapped(user);
  if (!handle) throw Unusable{user + " is not mapped in this process"};
  void* used = dlsym(handle, "hipModuleLaunchKernel");  // in `user` or a library it is linked to
  Dl_info found;
  if (!used || !dladdr(used, &found) || !found.dli_fname)
    throw Unusable{user + " uses no HIP runtime: torch is not a ROCm build"};
  return found.dli_fname;
}

Library::Library(const std::string& path, bool load) : path(path) {
  void* handle = load ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : mapped(path);
  if (!handle) {
    const char* why = dlerror();
    throw Unusable{path + " cannot be used: " + (why ? why : "it is not mapped at that path")};
  }
  auto find = [&](auto& function, const char* name, bool needed = true) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (needed && !function)
      throw Unusable{path + " has no " + name + ": ROCm 6 or newer is needed"};
  };
  find(hip_.hipGetDeviceCount, "hipGetDeviceCount");
  find(hip_.hipGetDevice, "hipGetDevice");
  find(hip_.hipSetDevice, "hipSetDevice");
  find(hip_.hipGetDevicePropertiesR0600, "hipGetDevicePropertiesR0600");
  find(hip_.hipDeviceGetAttribute, "hipDeviceGetAttribute");
  find(hip_.hipStreamGetDevice, "hipStreamGetDevice");
  find(hip_.hipStreamIsCapturing, "hipStreamIsCapturing");
  find(hip_.hipStreamSynchronize, "hipStreamSynchronize");
  find(hip_.hipModuleLoadData, "hipModuleLoadData");
  find(hip_.hipModuleGetFunction, "hipModuleGetFunction");
  find(hip_.hipFuncSetAttribute, "hipFuncSetAttribute");
  find(hip_.hipModuleLaunchKernel, "hipModuleLaunchKernel");
  find(hip_.hipGetLastError, "hipGetLastError");
  find(hip_.hipGetErrorName, "hipGetErrorName");
  find(hip_.hipGetErrorString, "hipGetErrorString");
  find(hip_.hkEmulatedWhy, "hkEmulatedWhy", false);
}

void Library::check(const char* call, int code) const {
  if (!code) return;
  // clears the runtime's own record, or torch's next check would report this error as its own
  hip_.hipGetLastError();
  std::string text = hip_.hipGetErrorString(code);
  const std::string why = hip_.hkEmulatedWhy ? hip_.hkEmulatedWhy() : "";
  if (!why.empty()) text += ": " + why;
  throw Failure{call, code, hip_.hipGetErrorName(code), text};
}

int Library::device_count() const {
  int count = 0;
  check("hipGetDeviceCount", hip_.hipGetDeviceCount(&count));
  return count;
}

std::string Library::arch(int device) const {
  std::string properties(kPropertiesBytes, '\0');
  check("hipGetDevicePropertiesR0600", hip_.hipGetDevicePropertiesR0600(properties.data(), device));
  const std::string name = properties.c_str() + kArchNameOffset;
  return name.substr(0, name.find(':'));
}

unsigned Library::compute_units(int device) const {
  int count = 0;
  check("hipDeviceGetAttribute", hip_.hipDeviceGetAttribute(&count, kMultiprocessorCount, device));
  return unsigned(count);
}

int Library::current_device() const {
  int device = 0;
  check("hipGetDevice", hip_.hipGetDevice(&device));
  return device;
}

void Library::set_current_device(int device) const {
  check("hipSetDevice", hip_.hipSetDevice(device));
}

int Library::device_of(Handle stream) const {
  int device = 0;
  check("hipStreamGetDevice", hip_.hipStreamGetDevice(stream, &device));
  return device;
}

bool Library::is_capturing(Handle stream) const {
  int status = 0;
  const int code = hip_.hipStreamIsCapturing(stream, &status);
  if (code == kStreamCaptureImplicit) {
    hip_.hipGetLastError();
    return true;
  }
  check("hipStreamIsCapturing", code);
  return status;
}

Handle Library::load(std::string image) {
  images_.push_back(std::move(image));
  Handle module = 0;
  check("hipModuleLoadData", hip_.hipModuleLoadData(&module, images_.back().data()));
  return module;
}

Handle Library::function(Handle module, const std::string& symbol) const {
  Handle found = 0;
  check("hipModuleGetFunction", hip_.hipModuleGetFunction(&found, module, symbol.c_str()));
  return found;
}

void Library::allow_dynamic_lds(Handle function, int bytes) const {
  const int code = hip_.hipFuncSetAttribute(function, kMaxDynamicLds, bytes);
  // ROCm before 7 supports the attribute only for functions of the host program. It then bounds a
  // module's launch by the hardware's LDS alone.
  if (code == kInvalidDeviceFunction)
    hip_.hipGetLastError();
  else
    check("hipFuncSetAttribute", code);
}

void Library::launch(Handle function, Grid grid, unsigned block, unsigned dynamic_lds,
                     Handle stream, const void* argument, size_t bytes) const {
  // HIP counts threads in 32 bits, and may wrap without an error
  const unsigned most = std::numeric_limits<unsigned>::max() / block;
  if (grid[0] > most)
    throw std::invalid_argument(
        "grid: " + std::to_string(grid[0]) + " workgroups of " + std::to_string(block) +
        " threads in one launch are not valid: " + "expected at most " + std::to_string(most));
  void* extra[] = {kParamBufferPointer, const_cast<void*>(argument), kParamBufferSize, &bytes,
                   kParamEnd};
  check("hipModuleLaunchKernel",
        hip_.hipModuleLaunchKernel(function, grid[0], grid[1], grid[2], block, 1, 1, dynamic_lds,
                                   stream, nullptr, extra));
}

void Library::synchronise(Handle stream) const {
  check("hipStreamSynchronize", hip_.hipStreamSynchronize(stream));
}

OnDevice::~OnDevice() {
  if (!changed_) return;
  try {
    library_.set_current_device(before_);
  } catch (const Failure&) {  // the launch's own error is the one to report
  }
}

}  // namespace hk::hip
