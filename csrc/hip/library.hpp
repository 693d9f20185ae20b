// A HIP runtime that this process has mapped, used through dlsym: nothing of HIP is linked.
//
// A second HIP runtime in a process knows nothing of the first one's streams and memory (its error
// for them is 709). So no library is ever opened by name: `runtime_of` finds the one that torch's
// own calls go to, and the emulated library is named by its path.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <list>
#include <string_view>
#include <vector>

namespace hk::hip {

using Handle = uintptr_t;  // handle of a stream, module or function
using Grid = std::array<unsigned, 3>;

// A HIP call failed; Python's HipError.
struct Failure {
  std::string call;
  int code;
  std::string name, text;
};

// There is no runtime to use; Python's DeviceError.
struct Unusable {
  std::string why;
};

// The path of the library that defines HIP's functions for the mapped library `user`.
std::string runtime_of(const std::string& user);

class Library {
 public:
  // `load`: whether the library may be mapped now, which is right only for the emulated one.
  Library(const std::string& path, bool load);
  Library(const Library&) = delete;

  const std::string path;

  int device_count() const;
  std::string arch(int device) const;  // without its features: gfx950
  unsigned compute_units(int device) const;
  int current_device() const;
  void set_current_device(int device) const;
  int device_of(Handle stream) const;  // the current device for 0, the null stream
  // Whether `stream` is being captured, or, for the null stream, a stream that it would wait for.
  bool is_capturing(Handle stream) const;
  // Loads a code object, whose bytes are kept. HIP trusts it to be whole.
  Handle load(std::string image);
  Handle function(Handle module, const std::string& symbol) const;
  void allow_dynamic_lds(Handle function, int bytes) const;
  // Enqueues one kernel. `argument` is copied before this returns.
  void launch(Handle function, Grid grid, unsigned block, unsigned dynamic_lds, Handle stream,
              const void* argument, size_t bytes) const;
  void synchronise(Handle stream) const;  // blocks; not for use while serving a request

 private:
  struct Functions {
    int (*hipGetDeviceCount)(int*);
    int (*hipGetDevice)(int*);
    int (*hipSetDevice)(int);
    int (*hipGetDevicePropertiesR0600)(void*, int);
    int (*hipDeviceGetAttribute)(int*, int, int);
    int (*hipStreamGetDevice)(Handle, int*);
    int (*hipStreamIsCapturing)(Handle, int*);
    int (*hipStreamSynchronize)(Handle);
    int (*hipModuleLoadData)(Handle*, const void*);
    int (*hipModuleGetFunction)(Handle*, Handle, const char*);
    int (*hipFuncSetAttribute)(Handle, int, int);
    int (*hipModuleLaunchKernel)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, Handle, void**, void**);
    int (*hipGetLastError)();
    const char* (*hipGetErrorName)(int);
    const char* (*hipGetErrorString)(int);
    const char* (*hkEmulatedWhy)();  // in the emulated library only; null in ROCm's
  } hip_ = {};
  std::list<std::string> images_;  // kept, as HIP does not say that it copies them

  void check(const char* call, int code) const;
};

// Makes a device this thread's current one, and restores the previous one.
class OnDevice {
 public:
  OnDevice(const Library& library, int device)
      : library_(library), before_(library.current_device()), changed_(before_ != device) {
    if (changed_) library.set_current_device(device);
  }
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;

 private:
  const Library& library_;
  int before_;
  bool changed_;
};

}  // namespace hk::hip
