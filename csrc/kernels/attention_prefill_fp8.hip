// Prefill attention over a cache of FP8 codes. It computes what attention_prefill.hip does, for
// queries of 16 bits and keys and values in e4m3, with a scale for the whole cache or for each KV
// head. There are no kernels for e5m2: neither vLLM nor SGLang has an e5m2 cache on ROCm.
//
// A wave loads 16 codes a lane of each tile, a step ahead, and writes them to LDS as 16-bit
// elements (TileFiller, WideningCopy). It does so once for all waves of the workgroup, with an
// instruction for every two codes. Every code is exact in either type, and a NaN stays one. From
// there on the kernel is the same. The scale of the keys is part of the scale of the scores; the
// scale of the values is applied to the output.
//
// Choices:
//   - K lies in pieces, whatever the cache: its two writes have one address. V that comes in rows
//     keeps the layout that transposed reads want.
//   - Both are written early in a step. The waits for the fragments of that step come later and are
//     in order: a steady step needs no other before the barrier. In pieces, apart where registers
//     are free for it (CopySlots).
//   - Codes wait in registers, so three tiles of keys in LDS suffice. Before the loop those of five
//     tiles are asked for at once, or each would wait for memory by itself.
//   - Packed keys are never codes. Blocks of any size have the usual rows alone, and none was built
//     with 64 rows.
#include "attention/kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(64, 128, All, paged_e4m3(47), split_e4m3(49), tokens_e4m3(51),
                  any_pages_e4m3(48));
ATTENTION_PREFILL(128, 256, All, paged_e4m3(74), split_e4m3(75), tokens_e4m3(78),
                  any_pages_e4m3(73));
ATTENTION_FEWER_ROWS(128, 128, All, paged_e4m3(60), split_e4m3(62), tokens_e4m3(65));
