// Workgroups that work on one result, of which the last to arrive completes it.
#pragma once

#include "../schedule.hpp"
#include "../types/register_tile.hpp"

namespace hk {

// Whether this workgroup is the last of `count` to arrive; the others' stores are then to be seen.
// `lds`: four bytes that no other wave uses.
HK_DEVICE bool arrives_last(u32* arrived, u32 count, u32 lds, i32 wave, Lane lane) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
  barrier();
  auto* before = (__attribute__((address_space(3))) u32*)lds;
  if (wave == 0 && lane.id == 0)
    *before = __scoped_atomic_fetch_add(arrived, 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
  synchronize();
  const bool last = u32(__builtin_amdgcn_readfirstlane(*before)) == count - 1;
  if (last) __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
  return last;
}

}  // namespace hk
