// What a kernel and code common to all instruction sets may share: never a function of its own, so
// that the linker has no copy to choose.
#pragma once

#define HK_INLINE inline __attribute__((always_inline))
