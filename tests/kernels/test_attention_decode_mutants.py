"""Mutants of the decode kernels: every wait, barrier and release that is needed is noticed."""

from __future__ import annotations

from hk_backend.kernels import KernelEntry, catalogue
from tests.kernels.attention_decode_mutants import judged
from tests.kernels.cover import proved
from tests.kernels.mutants import survivors

LOADED = (
    "s_waitcnt lgkmcnt(0): lgkmcnt 0 -> 1",
    "s_waitcnt lgkmcnt(0): lgkmcnt 0 -> dropped",
)
"""A wait of the compiler's, between requests, for scalar loads that are long done."""
PAST_THE_END = (
    "s_waitcnt vmcnt(0): vmcnt 0 -> 1",
    "s_waitcnt vmcnt(0): vmcnt 0 -> dropped",
)
"""The wait for copies past a request's last tile. The next request's copies come after them in any
case."""
COPY = "s_waitcnt vmcnt(4): vmcnt 4 -> 5"
COPY_OF_TWO, COPY_OF_SIX = "s_waitcnt vmcnt(2): vmcnt 2 -> 3", "s_waitcnt vmcnt(6): vmcnt 6 -> 7"
"""The last copy of a tile of values has channels that nobody reads before the next barrier. Two,
four or six copies may be in flight."""
STRICTER = {
    "d64_paged_r64": (*LOADED, *LOADED, COPY_OF_TWO, *PAST_THE_END),
    "d64_paged_r128": (*LOADED, *LOADED, COPY_OF_SIX, *PAST_THE_END),
    "d128_paged_r64": (*LOADED, *LOADED, COPY, *PAST_THE_END),
    # 16 bytes of a value's channel lie together, as in prefill (test_mutants.py)
    "d128_split_r64": (*LOADED, *LOADED, PAST_THE_END[0], *6 * (COPY,), *PAST_THE_END),
    "d64_paged_e4m3_r64": (*LOADED, *LOADED, *PAST_THE_END),
    # codes are widened: the wave waits for them before it writes, and so for all copies
    "d128_paged_e4m3_r64": (
        *LOADED,
        *LOADED,
        LOADED[0],
        "s_waitcnt vmcnt(0) lgkmcnt(0): vmcnt 0 -> 1",
        "s_waitcnt vmcnt(0) lgkmcnt(0): vmcnt 0 -> dropped",
    ),
}
"""Mutants that survive, by kernel: these waits wait for more than is needed there.

The other kernels have the same structures.
"""
KERNELS = [catalogue("gfx950").kernel(f"attention_decode_bf16_{name}") for name in STRICTER]
FEWEST = 150
"""Least number of changes of a kernel, one at a time. A smaller number would mean that some were
not found."""


@proved(KERNELS, with_types=False)
def test_every_wait_and_every_barrier_is_needed(entry: KernelEntry) -> None:
    verdicts = list(judged(entry))
    assert len(verdicts) >= FEWEST
    changes = tuple(verdict.mutant.change for verdict in survivors(verdicts))
    assert changes == STRICTER[entry.name.removeprefix("attention_decode_bf16_")]
