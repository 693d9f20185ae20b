// Prefill attention with heads of any multiple of 8 channels: what attention_prefill.hip and
// attention_window.hip compute, in tiles of 128 or of 256 channels of which the launch uses a part.
//
// Choices:
//   - The head size is known at run time only, and the loop is that of the full size: 96 channels
//     take as long as 128. These kernels are right, not fast: models with such heads are few. So
//     are those whose values have another size than their keys (192 and 128), which is a run-time
//     size, too.
//   - Past a row's end there are other heads, or nothing. Lanes of a copy that would fetch from
//     there fetch from past the view instead: Q, K and V are zeros in LDS, and no step knows of it.
//   - Where each lane finds its rows (tokens) there is no view to be past of. There lanes fetch the
//     row's first bytes once more; in K they are cleared on the way to the matrix unit, as 0 times
//     NaN is NaN, and in V they reach only channels that are not stored.
//   - No FP8: codes would have to be cleared in registers. No blocks of any size, soft caps, ALiBi
//     or parts: models with such heads are few.
#include "attention/kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_PADDED(128, 256, All, packed(79), paged(76), tokens(63), split(78));
ATTENTION_PADDED(128, 256, Window, packed(79), paged(76), tokens(62), split(78));
ATTENTION_PADDED(256, 128, All, packed(88), paged(84), tokens(68), split(85));
ATTENTION_PADDED(256, 128, Window, packed(88), paged(84), tokens(68), split(85));
