// Numbers by size, for host and device (the device has no <cstdint>).
#pragma once

namespace hk {

using i16 = __INT16_TYPE__;
using i32 = __INT32_TYPE__;
using u32 = __UINT32_TYPE__;
using i64 = __INT64_TYPE__;
using u64 = __UINT64_TYPE__;
using f32 = float;

}  // namespace hk
