"""Between how many workgroups the keys of a query tile are shared.

A launch of few rows has few workgroups, and each goes through all the keys that its rows see. In
parts there are workgroups enough, but each has its way to the first tile and out, and what they
find is written, read and joined by another kernel. What a choice costs comes from the timing model:
over 32 shapes of both head sizes these numbers are within 9% of it (rms), and choose what is at
most 17% and in the mean 0.7% slower than the best.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

TILE_KEYS, TILE_ROWS = 64, 128
"""Of a workgroup (csrc/kernels/attention/shape.hpp)."""
MOST_PARTS = 64
PARTIAL_BYTES = 64 << 20
"""Of what parts may leave in memory."""
GAP = 4.7
"""Microseconds from one kernel to the next: `dependent_gap` of the timing model."""
WORTH = 0.95
"""Parts are to take at most so much of the time without: the numbers here are not exact."""


class Cost(NamedTuple):
    """In microseconds.

    Args:
        resident: workgroups that a compute unit holds.
        fixed: of a workgroup, before and after its tiles of keys.
        alone: of a tile where there are no more workgroups than units; `shared`: of as many tiles
            as a unit holds workgroups.
        merge: of the kernel that joins parts, besides what it reads.
        merge_bytes: that parts leave, written and read in a microsecond.
    """

    resident: int
    fixed: float
    alone: float
    shared: float
    merge: float
    merge_bytes: float


COSTS = {64: Cost(3, 2.55, 0.62, 0.85, 2.2, 2.7e6), 128: Cost(1, 3.05, 0.67, 0.63, 3.7, 2.2e6)}
"""By head size."""


class Parts(NamedTuple):
    """`number` of them, each of `keys` keys: the last one has the rest."""

    number: int
    keys: int


@dataclass(frozen=True)
class Choice:
    """One way to deal the keys: the workgroups of its launch, and the microseconds that it is
    thought to take."""

    parts: Parts
    workgroups: int
    microseconds: float


def plan_parts(
    tokens: int, requests: int, heads: int, longest: int, head_size: int, compute_units: int
) -> Parts:
    """The best choice. Args: see `choices`."""
    whole, *others = choices(tokens, requests, heads, longest, head_size, compute_units)
    best = min(others, key=lambda choice: choice.microseconds, default=whole)
    return best.parts if best.microseconds < WORTH * whole.microseconds else whole.parts


def choices(
    tokens: int, requests: int, heads: int, longest: int, head_size: int, compute_units: int
) -> Iterator[Choice]:
    """Every way: one part, then twice as many each time.

    Args:
        tokens: of all requests together.
        longest: keys of the longest request.
    """
    cost = COSTS[head_size]
    # requests of any lengths: half of them end in a tile that another would have filled
    tiles = -(-tokens // TILE_ROWS) + (requests - 1) // 2
    steps = max(-(-longest // TILE_KEYS), 1)
    number = 1
    while number <= min(MOST_PARTS, steps):
        own = -(-steps // number)
        workgroups = tiles * heads * number
        left = number * tokens * heads * (8 + 2 * head_size) if number > 1 else 0
        if left > PARTIAL_BYTES:
            return
        rounds = -(-workgroups // (cost.resident * compute_units))
        tile = cost.alone if workgroups <= compute_units else cost.shared
        time = GAP + rounds * (cost.fixed + own * tile)
        if number > 1:
            time += GAP + cost.merge + left / cost.merge_bytes
        yield Choice(Parts(number, own * TILE_KEYS), workgroups, time)
        number *= 2
