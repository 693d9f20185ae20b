// Floating-point formats of the operators' tensors; the bindings use the same numbers.
#pragma once

#include <cstdint>

namespace hk::cpu {

enum class DType : int { f32, f16, bf16, f8e4m3fn, f8e5m2 };

}  // namespace hk::cpu
