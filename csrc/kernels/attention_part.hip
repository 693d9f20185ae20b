// Prefill attention of few rows over many keys: what attention_prefill.hip computes, of one part of
// the keys. Workgroups share the keys of a query tile, and attention_merge.hip joins what they
// found. Kernels of their own, so that the others take no register and no instruction for it.
//
// A workgroup begins with its part's first tile of keys and ends with its last; the loop is the
// same.
//
// Choices:
//   - Parts are whole tiles: only the last one has keys to mask, as without parts.
//   - Workgroup ids go round the XCDs, and a part is the grid's first dimension: where there are as
//     many parts as XCDs, or a multiple, one L2 reads the part's keys once for all heads and query
//     tiles.
//   - A part leaves its output divided and rounded: half the bytes of sums in float32, for one
//     rounding more. Beside it are the row's maximum and sum as they are, not their logarithm, so
//     that scores past float32's range are joined as exactly as within one workgroup.
//   - 128 rows at any head size: launches with parts are small. They are of all query heads of a KV
//     head, so that few tokens fill them.
//   - Windows (window_part) at d=128 alone: few keys are not worth sharing, and models with windows
//     of thousands have heads of 128 channels. Parts are counted from where the tile's first window
//     begins; rows are of one head, as with any window: the scalar registers for more are not
//     there.
#include "attention/kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(64, 128, Part, packed(53), paged(50), tokens(54), split(53));
ATTENTION_PREFILL(128, 128, Part, packed(64), paged(62), tokens(64), split(64));
ATTENTION_PREFILL(128, 128, WindowPart, paged(62), tokens(64), split(64));
