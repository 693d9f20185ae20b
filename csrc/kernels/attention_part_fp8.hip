// Prefill attention of a part of the keys of a cache of FP8 codes: as attention_part.hip.
#include "attention/kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(64, 128, Part, paged_e4m3(47), split_e4m3(49), tokens_e4m3(51));
ATTENTION_PREFILL(128, 128, Part, paged_e4m3(60), split_e4m3(62), tokens_e4m3(65));
ATTENTION_PREFILL(128, 128, WindowPart, paged_e4m3(60), split_e4m3(62), tokens_e4m3(65));
