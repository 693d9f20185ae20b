// A torch tensor's address, shape, strides, dtype and device, through DLPack's exchange table.
//
// torch.Tensor.__dlpack_c_exchange_api__ holds the table (torch 2.10 and newer). Reading a tensor
// costs one function call, and nothing of torch is linked. The structs are those of dlpack.h 1.3,
// and part of its ABI.
#pragma once

#include <cstdint>

namespace hk::hip {

struct DLTensor {
  void* data;
  struct {
    int32_t type, id;
    bool operator==(const auto& other) const { return type == other.type && id == other.id; }
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
    bool operator==(const auto& other) const {
      return code == other.code && bits == other.bits && lanes == other.lanes;
    }
  } dtype;
  int64_t* shape;
  int64_t* strides;  // elements
  uint64_t byte_offset;

  uintptr_t address() const { return reinterpret_cast<uintptr_t>(data) + byte_offset; }
};

struct DLPackExchangeApi {
  struct {
    uint32_t major, minor;
  } version;
  DLPackExchangeApi* older;
  void* managed_tensor_allocator;
  void* managed_tensor_from_py_object_no_sync;
  void* managed_tensor_to_py_object_no_sync;
  int (*dltensor_from_py_object_no_sync)(void* tensor, DLTensor* out);  // -1: a Python exception
  void* current_work_stream;
};

inline constexpr const char* kExchangeCapsule = "dlpack_exchange_api";
inline constexpr uint32_t kExchangeMajor = 1;

}  // namespace hk::hip
