// Decode attention with a soft cap of the scores (attention_decode.hip, attention/logits.hpp).
#include "attention/decode_kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_DECODE(64, 128, Capped, paged, tokens, split);
ATTENTION_DECODE(128, 64, Capped, paged, tokens, split);
ATTENTION_DECODE(128, 128, Capped, paged, tokens, split);
ATTENTION_DECODE(256, 128, Capped, paged, tokens, split);
