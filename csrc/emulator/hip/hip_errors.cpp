// Names and texts of the errors, the same as in ROCm's library.

#include "hip/hip_types.hpp"

namespace hk::emulator::hip {

ErrorText describe(int error) {
  switch (error) {
    case kSuccess: return {"hipSuccess", "no error"};
    case kInvalidValue: return {"hipErrorInvalidValue", "invalid argument"};
    case kOutOfMemory: return {"hipErrorOutOfMemory", "out of memory"};
    case kInvalidConfiguration:
      return {"hipErrorInvalidConfiguration", "invalid configuration argument"};
    case kInvalidMemcpyDirection:
      return {"hipErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"};
    case kInvalidDeviceFunction:
      return {"hipErrorInvalidDeviceFunction", "invalid device function"};
    case kInvalidDevice: return {"hipErrorInvalidDevice", "invalid device ordinal"};
    case kInvalidImage: return {"hipErrorInvalidImage", "device kernel image is invalid"};
    case kNoBinaryForGpu:
      return {"hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"};
    case kInvalidHandle: return {"hipErrorInvalidHandle", "invalid resource handle"};
    case kIllegalState:
      return {"hipErrorIllegalState", "the operation cannot be performed in the present state"};
    case kNotFound: return {"hipErrorNotFound", "named symbol not found"};
    case kNotReady: return {"hipErrorNotReady", "device not ready"};
    case kContextIsDestroyed: return {"hipErrorContextIsDestroyed", "context is destroyed"};
    case kHostMemoryAlreadyRegistered:
      return {"hipErrorHostMemoryAlreadyRegistered",
              "part or all of the requested memory range is already mapped"};
    case kHostMemoryNotRegistered:
      return {"hipErrorHostMemoryNotRegistered",
              "pointer does not correspond to a registered memory region"};
    case kLaunchFailure: return {"hipErrorLaunchFailure", "unspecified launch failure"};
    case kIllegalAddress:
      return {"hipErrorIllegalAddress", "an illegal memory access was encountered"};
    case kNotSupported: return {"hipErrorNotSupported", "operation not supported"};
    case kStreamCaptureUnsupported:
      return {"hipErrorStreamCaptureUnsupported",
              "operation not permitted when stream is capturing"};
    case kStreamCaptureInvalidated:
      return {"hipErrorStreamCaptureInvalidated",
              "operation failed due to a previous error during capture"};
    case kStreamCaptureMerge:
      return {"hipErrorStreamCaptureMerge",
              "operation would result in a merge of separate capture sequences"};
    case kStreamCaptureUnmatched:
      return {"hipErrorStreamCaptureUnmatched",
              "capture was not ended in the same stream as it began"};
    case kStreamCaptureUnjoined:
      return {"hipErrorStreamCaptureUnjoined", "capturing stream has unjoined work"};
    case kStreamCaptureIsolation:
      return {"hipErrorStreamCaptureIsolation",
              "dependency created on uncaptured work in another stream"};
    case kStreamCaptureImplicit:
      return {"hipErrorStreamCaptureImplicit",
              "operation would make the legacy stream depend on a capturing blocking stream"};
    case kCapturedEvent:
      return {"hipErrorCapturedEvent",
              "operation not permitted on an event last recorded in a capturing stream"};
    case kStreamCaptureWrongThread:
      return {"hipErrorStreamCaptureWrongThread",
              "attempt to terminate a thread-local capture sequence from another thread"};
    default: return {"hipErrorUnknown", "unknown error"};
  }
}

}  // namespace hk::emulator::hip
