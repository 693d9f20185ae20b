// Decode attention with heads of any multiple of 8 channels: what attention_decode.hip computes, in
// tiles of 128 or of 256 channels of which the launch uses a part (attention_padded.hip).
//
// Choices:
//   - Memory bounds decode, and lanes past a row's end fetch nothing: 96 channels cost three
//     quarters of 128, not as much, as they do in prefill.
//   - Partial results have room for all channels of the tile. Those past a row's end are not read.
//   - No FP8, blocks of any size, caps or ALiBi, as in prefill.
#include "attention/decode_kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_DECODE_PADDED(128, 64, Window, paged, tokens, split);
ATTENTION_DECODE_PADDED(128, 128, Window, paged, tokens, split);
ATTENTION_DECODE_PADDED(256, 128, Window, paged, tokens, split);
