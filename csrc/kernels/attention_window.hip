// Prefill attention with a sliding window, with sinks, or with both. A row sees only the last keys
// up to its own, and a head may have a sink: a score that has no value. All else is as in
// attention_prefill.hip. These are kernels of their own, so that the others take no register and no
// instruction for it.
//
// Rows are of one head: the sinks of several would be one for each lane.
//
// A workgroup begins with the tile of keys where its first row's window begins. Waves whose windows
// begin later compute the tiles before in vain: up to four of 64 keys.
//
// Choices:
//   - Tiles that begin before a row's window have one loop more, before the steady one. One
//     comparison masks both sides: past a row's last key the distance from it is a large number.
//   - The first tile has values that no row sees, and they may be NaN. The loop before the steady
//     one clears them in the fragments. Codes are cleared on their way to LDS. Where each lane
//     finds its row, it finds another row in place of these. In the steady loop this would cost
//     registers that d=64 does not have.
//   - The last step clears no such value. So a lone tile that has some is followed by another one,
//     of which no row sees anything.
//   - The sink joins the sum of the weights at the end (Epilogue), in logarithms. It is no maximum
//     that the weights would have to be taken from.
//   - Blocks of any size have the usual rows alone, as in attention_prefill.hip; none was built
//     with 64 rows.
#include "attention/kernel.hpp"

HK_ARCHES(gfx950);

ATTENTION_PREFILL(64, 128, Window, packed(54), paged(50), tokens(54), any_pages(47), split(53));
ATTENTION_PREFILL(128, 256, Window, packed(79), paged(76), tokens(79), any_pages(73), split(78));
ATTENTION_FEWER_ROWS(128, 128, Window, packed(64), paged(62), tokens(64), split(64));
