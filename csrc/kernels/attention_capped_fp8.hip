// The attention of attention_capped.hip over a cache of e4m3 codes, which attention_prefill_fp8.hip
// describes. Only d=128: at d=64 three waves on a SIMD have no registers for it.
#include "attention/kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(128, 256, Capped, paged_e4m3(54), split_e4m3(55), tokens_e4m3(56));
