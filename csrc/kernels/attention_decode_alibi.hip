// Decode attention with linear biases (ALiBi): what attention_decode.hip computes, of
// score + slope * (key - query), with a slope for each head (attention_alibi.hip).
//
// Choices:
//   - Rows of a tile are of several heads, so each lane has the slope of its own row (BiasedRows).
//   - A part's biases are by the distance to the last key that a row sees of it. What they lack is
//     the same for all its keys, and goes into the maximum that the part leaves.
#include "attention/decode_kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_DECODE(64, 128, Biased, paged, tokens, split);
ATTENTION_DECODE(128, 64, Biased, paged, tokens, split);
ATTENTION_DECODE(128, 128, Biased, paged, tokens, split);
