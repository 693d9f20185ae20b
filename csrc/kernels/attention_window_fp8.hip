// The attention of attention_window.hip over a cache of e4m3 codes, which attention_prefill_fp8.hip
// describes.
#include "attention/kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(64, 128, Window, paged_e4m3(48), split_e4m3(49), tokens_e4m3(51),
                  any_pages_e4m3(48));
ATTENTION_PREFILL(128, 256, Window, paged_e4m3(74), split_e4m3(75), tokens_e4m3(78),
                  any_pages_e4m3(73));
ATTENTION_FEWER_ROWS(128, 128, Window, paged_e4m3(60), split_e4m3(62), tokens_e4m3(65));
