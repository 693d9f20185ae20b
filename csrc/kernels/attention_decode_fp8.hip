// Decode attention over a cache of FP8 codes (attention_decode.hip), which are widened on their way to
// LDS (attention/tile_filler.hpp).
#include "attention/decode_kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_DECODE(64, 64, Window, paged_e4m3, tokens_e4m3, any_pages_e4m3, split_e4m3);
ATTENTION_DECODE(64, 128, Window, paged_e4m3, tokens_e4m3, any_pages_e4m3, split_e4m3);
ATTENTION_DECODE(128, 64, Window, paged_e4m3, tokens_e4m3, any_pages_e4m3, split_e4m3);
ATTENTION_DECODE(128, 128, Window, paged_e4m3, tokens_e4m3, any_pages_e4m3, split_e4m3);
ATTENTION_DECODE(256, 128, Window, paged_e4m3, tokens_e4m3, split_e4m3);
