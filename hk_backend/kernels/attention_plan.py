"""How the rows and the keys of a step's attention are dealt to workgroups.

Rows: in tiles of a few sizes. Small ones occupy more compute units, large ones read keys less
often and have fewer workgroups, of which each has its way to the first tile of keys and out. Keys:
a launch of few rows has few workgroups, and each goes through all the keys that its rows see. In
parts there are workgroups enough, but what they find is written, read and joined by another kernel.

What a choice costs comes from the timing model: over 44 shapes of head sizes 64 and 128 these
numbers are within 7% of it (rms), and choose what is at most 8% and in the mean 0.3% slower than
the best; over 23 of 256, at most 1% and in the mean 0.03%.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from hk_backend.kernels.masks import ALL_KEYS

T = TypeVar("T")

TILE_KEYS, PART_ROWS = 64, 128
"""Keys of a step, and rows of a workgroup where keys are in parts."""
MOST_PARTS = 64
FEW_PARTS = 8
"""That the kernel which joins them loads at once."""
PARTIAL_BYTES = 64 << 20
"""Of what parts may leave in memory."""
GAP = 4.7
"""Microseconds from one kernel to the next: `dependent_gap` of the timing model."""
WORTH = 0.95
"""Parts are to take at most so much of the time without: the numbers here are not exact."""


class Cost(NamedTuple):
    """Of workgroups with so many rows, in microseconds.

    Args:
        resident: workgroups that a compute unit holds.
        fixed: of a workgroup, before and after its tiles of keys.
        alone: of a tile where there are no more workgroups than units; `shared`: of as many tiles
            as a unit holds workgroups.
    """

    resident: int
    fixed: float
    alone: float
    shared: float


COSTS: Mapping[int, Mapping[int, Cost]] = {
    64: {128: Cost(3, 3.06, 0.56, 0.87)},
    128: {
        256: Cost(1, 4.46, 1.13, 1.25),
        128: Cost(1, 4.15, 0.65, 0.68),
        64: Cost(1, 3.4, 0.52, 0.56),
    },
    256: {128: Cost(1, 5.4, 1.35, 1.51)},
}
"""By head size and rows of a workgroup."""


class Merge(NamedTuple):
    """What the kernel that joins parts takes: microseconds by itself and for every few parts, which
    it loads at once; and bytes that parts leave, written and read in a microsecond."""

    fixed: float
    few: float
    bytes: float


MERGES: Mapping[int, Merge] = {
    64: Merge(2.1, 0.75, 5.5e6),
    128: Merge(2.5, 0.85, 15e6),
    256: Merge(2.1, 0.9, 9e6),
}
"""By head size."""


class Parts(NamedTuple):
    """`number` of them, each of `keys` keys: the last one has the rest."""

    number: int
    keys: int


class Step(NamedTuple):
    """What is to be dealt. All requests are thought to be alike.

    Args:
        tokens: of all requests together.
        longest: keys of the longest request; 0: not known, and taken for as many as its tokens.
        grouped: whether tiles have the rows of all query heads of a KV head where keys are not
            shared. Where they are, they have, but those with windows.
        window: keys that a row sees at most.
    """

    tokens: int
    requests: int
    longest: int
    heads: int
    kv_heads: int
    head_size: int
    grouped: bool = True
    window: int = ALL_KEYS

    @property
    def tokens_each(self) -> int:
        """Of a request."""
        return -(-self.tokens // self.requests)

    def heads_of_tile(self, shared: bool) -> int:
        """Whose rows it has."""
        grouped = self.grouped or (shared and self.window == ALL_KEYS)
        return self.heads // self.kv_heads if grouped else 1

    def workgroups(self, rows: int, shared: bool = False) -> int:
        """Or those of each part of `shared` keys."""
        of_tile = self.heads_of_tile(shared)
        return self.requests * (self.heads // of_tile) * -(-self.tokens_each * of_tile // rows)

    def key_tiles(self, rows: int, shared: bool = False) -> tuple[int, int]:
        """That a tile of so many rows goes through: a request's last one and, if the mask is
        causal, its first. Or all workgroups that share its keys."""
        own = -(-rows // self.heads_of_tile(shared))  # tokens
        keys = max(self.longest, self.tokens_each)
        seen = (min(each, self.window + own) for each in (keys, keys - self.tokens_each + own))
        most, least = (max(-(-each // TILE_KEYS), 1) for each in seen)
        return most, min(least, most)


@dataclass(frozen=True)
class Choice:
    """One way to deal a step: rows of a workgroup, parts of the keys, the workgroups of its launch,
    and the microseconds that it is thought to take."""

    rows: int
    parts: Parts
    workgroups: int
    microseconds: float


def choose(step: Step, compute_units: int, sizes: Collection[int], parts: bool = True) -> Choice:
    """The best choice. Args: see `choices`."""
    every = list(choices(step, compute_units, sizes, parts))
    whole, *shared = (
        min(way, key=lambda each: each.microseconds)
        for is_shared in (False, True)
        if (way := [each for each in every if (each.parts.number > 1) == is_shared])
    )
    return next((s for s in shared if s.microseconds < WORTH * whole.microseconds), whole)


def choices(
    step: Step, compute_units: int, sizes: Collection[int], parts: bool = True
) -> Iterator[Choice]:
    """Every way: whole, with tiles of each size; then two parts, and twice as many each time.

    Args:
        sizes: rows of a workgroup that there are kernels for.
        parts: whether keys may be shared.
    """
    for rows in sizes:
        most, least = step.key_tiles(rows)
        workgroups = step.workgroups(rows)
        time = _makespan(cost_of(step.head_size, rows), workgroups, compute_units, most, least)
        yield Choice(rows, Parts(1, most * TILE_KEYS), workgroups, GAP + time)
    number, cost = 2, cost_of(step.head_size, PART_ROWS)
    keys, _ = step.key_tiles(PART_ROWS, shared=True)
    while parts and number <= min(MOST_PARTS, keys):
        left = number * step.tokens * step.heads * (8 + 2 * step.head_size)
        if left > PARTIAL_BYTES:
            return
        own, merge = -(-keys // number), _of_nearest(MERGES, step.head_size)
        workgroups = step.workgroups(PART_ROWS, shared=True) * number
        time = _makespan(cost, workgroups, compute_units, own, own)
        time += GAP + merge.fixed + -(-number // FEW_PARTS) * merge.few + left / merge.bytes
        yield Choice(PART_ROWS, Parts(number, own * TILE_KEYS), workgroups, GAP + time)
        number *= 2


def cost_of(head_size: int, rows: int) -> Cost:
    """Of sizes that there are no numbers for: those of the nearest."""
    return _of_nearest(_of_nearest(COSTS, head_size), rows)


def _of_nearest(numbers: Mapping[int, T], size: int) -> T:
    return numbers[min(numbers, key=lambda known: abs(known - size))]


def _makespan(cost: Cost, workgroups: int, compute_units: int, most: int, least: int) -> float:
    """Until the last workgroup ends, of those that go through `most` to `least` tiles of keys and
    start in that order."""
    if workgroups <= compute_units:
        return cost.fixed + most * cost.alone
    longest, shortest = (cost.fixed + tiles * cost.shared for tiles in (most, least))
    rounds = workgroups / (cost.resident * compute_units)
    left_idle = -(-workgroups // (cost.resident * compute_units)) - rounds
    return max(longest, rounds * (longest + shortest) / 2 + left_idle * shortest)
