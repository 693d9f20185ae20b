// Numbers and layouts of the part of HIP's C interface that the emulated library offers.
//
// Source: ROCm's hip_runtime_api.h (HIP 6 and 7; the numbers are part of the ABI).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hk::emulator::hip {

enum Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidConfiguration = 9,
  kInvalidMemcpyDirection = 21,
  kInvalidDeviceFunction = 98,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kContextIsDestroyed = 709,
  kHostMemoryAlreadyRegistered = 712,
  kHostMemoryNotRegistered = 713,
  kLaunchFailure = 719,
  kNotSupported = 801,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureMerge = 902,
  kStreamCaptureUnmatched = 903,
  kStreamCaptureUnjoined = 904,
  kStreamCaptureIsolation = 905,
  kStreamCaptureImplicit = 906,
  kCapturedEvent = 907,
  kStreamCaptureWrongThread = 908,
  kUnknown = 999,
};

struct ErrorText {
  const char *name, *text;
};
ErrorText describe(int error);  // "hipErrorUnknown" for errors not listed above

struct Failure {  // thrown inside the library, returned at its border
  Error error;
  std::string why = {};  // details beyond the error number
};

enum CopyKind : int { kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice, kDefault };

enum CaptureMode : int { kCaptureGlobal, kCaptureThreadLocal, kCaptureRelaxed };
enum CaptureStatus : int { kNotCapturing, kCapturing, kCaptureInvalidated };
// Values of hipGraphNodeType that a capture makes.
enum NodeType : int { kKernelNode = 0, kMemcpyNode = 1, kMemsetNode = 2, kGraphNode = 4 };

// Values of hipDeviceAttribute_t that host programs of kernels ask for.
enum Attribute : int {
  kMaxThreadsPerBlock = 56,
  kMultiprocessorCount = 63,
  kMaxSharedMemoryPerBlock = 74,
  kWarpSize = 87,
  kMaxSharedMemoryPerMultiprocessor = 10002,
  kNumberOfXccs = 10018,
};

// Values of hipFunction_attribute.
enum FunctionAttribute : int {
  kFunctionMaxThreadsPerBlock = 0,
  kFunctionSharedSize = 1,
  kFunctionConstSize = 2,
  kFunctionLocalSize = 3,
  kFunctionNumRegisters = 4,
  kFunctionMaxDynamicShared = 8,  // hipFuncAttributeMaxDynamicSharedMemorySize has this number too
};

// Keys in the `extra` argument of hipModuleLaunchKernel.
inline void* const kLaunchParamBufferPointer = reinterpret_cast<void*>(1);
inline void* const kLaunchParamBufferSize = reinterpret_cast<void*>(2);
inline void* const kLaunchParamEnd = reinterpret_cast<void*>(3);

// hipDeviceProp_tR0600; fields without a name here are zero.
struct DeviceProperties {
  char name[256];
  char unnamed_0[32];
  size_t totalGlobalMem;
  size_t sharedMemPerBlock;
  int regsPerBlock;
  int warpSize;
  size_t memPitch;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int clockRate;  // kHz
  size_t totalConstMem;
  int major, minor;
  char unnamed_1[20];
  int multiProcessorCount;
  char unnamed_2[224];
  int l2CacheSize;
  int persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor;
  char unnamed_3[12];
  size_t sharedMemPerMultiprocessor;
  char unnamed_4[512];
  char gcnArchName[256];
  size_t maxSharedMemoryPerMultiProcessor;
  char unnamed_5[48];
};
static_assert(offsetof(DeviceProperties, totalGlobalMem) == 288);
static_assert(offsetof(DeviceProperties, maxThreadsPerBlock) == 320);
static_assert(offsetof(DeviceProperties, major) == 360);
static_assert(offsetof(DeviceProperties, multiProcessorCount) == 388);
static_assert(offsetof(DeviceProperties, l2CacheSize) == 616);
static_assert(offsetof(DeviceProperties, sharedMemPerMultiprocessor) == 640);
static_assert(offsetof(DeviceProperties, gcnArchName) == 1160);
static_assert(sizeof(DeviceProperties) == 1472);

}  // namespace hk::emulator::hip
