// HK_INLINE marks functions that kernels share with code common to all instruction sets. They are
// always inlined, so that the linker has no copy for a wrong instruction set to choose.
#pragma once

#define HK_INLINE inline __attribute__((always_inline))
