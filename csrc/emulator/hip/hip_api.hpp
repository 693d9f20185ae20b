// Definitions that the files of the interface share; see hip_api.cpp.
#pragma once

#include <mutex>
#include <new>
#include <string>
#include <type_traits>

#include "hip/hip_runtime.hpp"

// Marks a function of the library's C interface.
#define EXPORT extern "C" __attribute__((visibility("default")))

namespace hk::emulator::hip {

inline thread_local int last_error = kSuccess;
inline thread_local std::string why_last_failed;  // Failure::why of this thread's last call

// Runs the body of an interface function, one at a time; exceptions become error numbers.
template <class Body>
int call(Body body) {
  Runtime& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  int error = kSuccess;
  why_last_failed.clear();
  try {
    if constexpr (std::is_void_v<decltype(body(runtime))>)
      body(runtime);
    else
      error = body(runtime);
  } catch (const Failure& failure) {
    error = failure.error;
    why_last_failed = failure.why;
  } catch (const std::bad_alloc&) {
    error = kOutOfMemory;
  } catch (const std::exception& failure) {
    error = kUnknown;
    why_last_failed = failure.what();
  }
  if (error != kSuccess && error != kNotReady) last_error = error;
  return error;
}

inline void require(bool condition, Error otherwise = kInvalidValue) {
  if (!condition) throw Failure{otherwise};
}

inline Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }
inline void* pointer_to(Address address) { return reinterpret_cast<void*>(address); }

}  // namespace hk::emulator::hip
