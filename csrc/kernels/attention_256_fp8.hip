// Prefill attention with heads of 256 channels over a cache of e4m3 codes: attention_256.hip with
// the codes of attention_prefill_fp8.hip.
//
// A wave has two loads of 16 codes a lane for each tile, of the same row. These are eight pieces,
// each in a slot of its own: those of keys in the half of a step that computes scores, those of
// values in the half that computes O.
#include "attention/kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(256, 128, All, paged_e4m3(81), tokens_e4m3(84), split_e4m3(83));
ATTENTION_PREFILL(256, 128, Window, paged_e4m3(81), tokens_e4m3(84), split_e4m3(83));
ATTENTION_PREFILL(256, 128, Part, paged_e4m3(81), tokens_e4m3(84), split_e4m3(83));
