// The decode attention of attention_decode_capped.hip over a cache of e4m3 codes
// (attention_decode_fp8.hip). Only d=128, as in prefill (attention_capped_fp8.hip).
#include "attention/decode_kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_DECODE(128, 64, Capped, paged_e4m3, tokens_e4m3, split_e4m3);
ATTENTION_DECODE(128, 128, Capped, paged_e4m3, tokens_e4m3, split_e4m3);
