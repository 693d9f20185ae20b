// Modules, functions and their attributes, launches.

#include <algorithm>
#include <cstring>

#include "hip/hip_api.hpp"
#include "machine/hidden_arguments.hpp"

using namespace hk::emulator;
using namespace hk::emulator::hip;

EXPORT int hipModuleLoadData(void** module, const void* image) {
  return call([&](Runtime& runtime) {
    require(module && image);
    *module = &runtime.load_module(image);
  });
}

EXPORT int hipModuleUnload(void* module) {
  return call([&](Runtime& runtime) {
    runtime.captures.unsafe_call();
    runtime.unload_module(module);
  });
}

EXPORT int hipModuleGetFunction(void** function, void* module, const char* name) {
  return call([&](Runtime& runtime) {
    require(function && name && *name);
    *function = &runtime.function(module, name);
  });
}

EXPORT int hipFuncGetAttribute(int* value, int attribute, void* handle) {
  return call([&](Runtime& runtime) {
    require(value);
    const Function& function = runtime.function(handle);
    const Kernel& kernel = *function.kernel;
    const size_t lds = properties_of(kernel.arch).sharedMemPerBlock;
    switch (attribute) {
      case kFunctionMaxThreadsPerBlock: *value = int(kernel.max_block); break;
      case kFunctionSharedSize: *value = int(kernel.static_lds); break;
      case kFunctionConstSize: *value = 0; break;
      case kFunctionLocalSize: *value = int(kernel.scratch); break;
      case kFunctionNumRegisters: *value = int(kernel.vgprs); break;
      case kFunctionMaxDynamicShared: *value = int(lds - kernel.static_lds); break;
      default: throw Failure{kInvalidValue};
    }
  });
}

EXPORT int hipFuncSetAttribute(const void* handle, int attribute, int value) {
  return call([&](Runtime& runtime) {
    require(handle && runtime.module_attributes, kInvalidDeviceFunction);
    Function& function = runtime.function(handle);
    require(attribute == kFunctionMaxDynamicShared);
    const size_t lds = properties_of(function.kernel->arch).sharedMemPerBlock;
    require(value >= 0 && value + function.kernel->static_lds <= lds);
    function.max_dynamic_lds = std::max(size_t(value), kDynamicLdsWithoutAttribute);
  });
}

EXPORT int hipModuleLaunchKernel(void* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z,
                                 unsigned dynamic_lds, void* stream, void** parameters,
                                 void** extra) {
  return call([&](Runtime& runtime) {
    runtime.launch_calls += 1;
    if (!runtime.launches_run) return;
    Function& function = runtime.function(handle);
    const Kernel& kernel = *function.kernel;
    require(!(parameters && extra));
    std::vector<std::byte> kernarg(kernel.kernarg_size);
    if (extra) {
      require(extra[0] == kLaunchParamBufferPointer && extra[2] == kLaunchParamBufferSize &&
              extra[4] == kLaunchParamEnd);
      const size_t given = *static_cast<const size_t*>(extra[3]);
      require(given >= declared_bytes(kernel));
      std::memcpy(kernarg.data(), extra[1], std::min(given, kernarg.size()));
    } else {
      for (const KernelArgument& argument : kernel.arguments) {
        if (argument.kind.starts_with("hidden_")) continue;  // the machine fills them in
        require(parameters);
        std::memcpy(kernarg.data() + argument.offset, *parameters++, argument.size);
      }
    }
    runtime.launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_lds,
                   runtime.stream(stream), std::move(kernarg));
  });
}
