"""Plan of a step's attention: rows in a workgroup's tile, and parts that the keys are split into.

Tile sizes trade off two costs. Small tiles occupy more compute units. Large tiles read the keys
less often and start fewer workgroups; each workgroup pays a fixed time before and after its keys.

Splitting the keys helps a launch of few rows, whose few workgroups would each go through all keys.
More parts mean more workgroups, but each part writes a partial result, and a merge kernel reads and
joins them.

Times follow from the kernels' costs (costs.py), within 4.2% (rms) of the timing model over ten
shapes with head sizes 64, 128 and 256. For each of these thirty the choice is the model's best.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hk_backend.kernels.costs import MOST_PARTIAL_BYTES, Cost, costs, of_nearest
from hk_backend.kernels.masks import ALL_KEYS

TILE_KEYS, PART_ROWS = 64, 128
"""Keys in one step of the loop; rows of a workgroup where the keys are split into parts."""
MOST_PARTS = 64
FEW_PARTS = 8
"""Number of partial results that the merge kernel loads at once."""
SPLIT_BELOW = 0.95
"""Keys are split only if that takes less than this share of the time, as costs are approximate."""
CLOCK = costs("gfx950")
"""The only arch whose attention has alternatives to choose among."""


class Parts(NamedTuple):
    """The `number` of parts, and the `keys` of each; the last part has the remaining keys."""

    number: int
    keys: int


class LaunchSizes(NamedTuple):
    """Sizes of one launch, which decide how its rows and keys are dealt to workgroups.

    Assumes that all requests have the same length.

    Args:
        tokens: query tokens of all requests together.
        longest: keys of the longest request; 0 if unknown, then taken as its query tokens.
        grouped: whether a tile has the rows of all query heads of a KV head where the keys are not
            split. Tiles of split keys always do, unless there is a window.
        window: most keys that a row sees.
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
        """Query tokens of one request."""
        return -(-self.tokens // self.requests)

    def heads_of_tile(self, shared: bool) -> int:
        """Number of query heads whose rows one tile holds. `shared`: the keys are split."""
        grouped = self.grouped or (shared and self.window == ALL_KEYS)
        return self.heads // self.kv_heads if grouped else 1

    def workgroups(self, rows: int, shared: bool = False) -> int:
        """Workgroups of the launch, for each part if the keys are split (`shared`)."""
        of_tile = self.heads_of_tile(shared)
        return self.requests * (self.heads // of_tile) * -(-self.tokens_each * of_tile // rows)

    def key_tiles(self, rows: int, shared: bool = False) -> tuple[int, int]:
        """Tiles of keys that a request's last tile of rows sees, and the same for its first tile.

        The second number holds for a causal mask. Workgroups that share the keys of a tile of rows
        count together.
        """
        own = -(-rows // self.heads_of_tile(shared))  # tokens
        keys = max(self.longest, self.tokens_each)
        seen = (min(each, self.window + own) for each in (keys, keys - self.tokens_each + own))
        most, least = (max(-(-each // TILE_KEYS), 1) for each in seen)
        return most, min(least, most)


@dataclass(frozen=True)
class Choice:
    """One way to deal a step: a workgroup's rows, parts of the keys, workgroups, estimated time."""

    rows: int
    parts: Parts
    workgroups: int
    microseconds: float


def choose(
    launch: LaunchSizes, compute_units: int, sizes: Collection[int], parts: bool = True
) -> Choice:
    """Chooses the fastest way to deal a launch. Arguments are those of `choices`."""
    every = list(choices(launch, compute_units, sizes, parts))
    whole, *shared = (
        min(way, key=lambda each: each.microseconds)
        for is_shared in (False, True)
        if (way := [each for each in every if (each.parts.number > 1) == is_shared])
    )
    return next((s for s in shared if s.microseconds < SPLIT_BELOW * whole.microseconds), whole)


def choices(
    launch: LaunchSizes, compute_units: int, sizes: Collection[int], parts: bool = True
) -> Iterator[Choice]:
    """Yields every way to deal a launch: unsplit with tiles of any size, then in 2, 4, 8 ... parts.

    Args:
        sizes: rows of a workgroup for which there are kernels.
        parts: whether the keys may be split.
    """
    start = CLOCK.launch_microseconds
    for rows in sizes:
        most, least = launch.key_tiles(rows)
        workgroups = launch.workgroups(rows)
        time = _makespan(cost_of(launch.head_size, rows), workgroups, compute_units, most, least)
        yield Choice(rows, Parts(1, most * TILE_KEYS), workgroups, start + time)
    number, cost = 2, cost_of(launch.head_size, PART_ROWS)
    keys, _ = launch.key_tiles(PART_ROWS, shared=True)
    while parts and number <= min(MOST_PARTS, keys):
        left = partial_bytes(number * launch.tokens * launch.heads, launch.head_size)
        if left > MOST_PARTIAL_BYTES:
            return
        own, merge = -(-keys // number), of_nearest(CLOCK.attention_merge, launch.head_size)
        workgroups = launch.workgroups(PART_ROWS, shared=True) * number
        time = _makespan(cost, workgroups, compute_units, own, own)
        time += start + merge.fixed + -(-number // FEW_PARTS) * merge.few_parts
        time += left / merge.bytes_per_microsecond
        yield Choice(PART_ROWS, Parts(number, own * TILE_KEYS), workgroups, start + time)
        number *= 2


def partial_bytes(rows: int, head_size: int) -> int:
    """Bytes of partial results: per row two float32 sums, and an output of 16-bit elements."""
    return rows * (8 + 2 * head_size)


def cost_of(head_size: int, rows: int) -> Cost:
    """Cost for the nearest head size and number of rows in the table."""
    return of_nearest(of_nearest(CLOCK.attention, head_size), rows)


def _makespan(cost: Cost, workgroups: int, compute_units: int, most: int, least: int) -> float:
    """Microseconds until the last workgroup ends.

    Workgroups go through `most` to `least` tiles of keys, and start in that order.
    """
    if workgroups <= compute_units:
        return cost.fixed + most * cost.alone
    held = min(cost.resident, -(-workgroups // compute_units))  # by each CU at once
    together = max(cost.alone, held * cost.shared)
    longest, shortest = (cost.fixed + tiles * together for tiles in (most, least))
    rounds = workgroups / (held * compute_units)
    left_idle = -(-workgroups // (held * compute_units)) - rounds
    return max(longest, rounds * (longest + shortest) / 2 + left_idle * shortest)
