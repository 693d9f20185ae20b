"""Which gemm kernels can compute a shape, over how many workgroups each may split the depth of a
tile, and how long that is thought to take. The choice between them is gemm_choice.py's.

Candidates are the kernels of one format (`family`) with each number of splits that leaves every
workgroup a step. Each costs what a table says that the timing model has made
(hk_backend/timing/gemm_costs.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hk_backend.kernels.catalogue import Family
from hk_backend.kernels.entry import KernelEntry

COSTS = Path(__file__).with_name("gemm_costs.json")
"""By arch and kernel."""
PLANNED = "planned"
LARGEST_SPLIT_TILE = 128 * 128
"""Elements of C, up to which a kernel may share a tile's depth (csrc/kernels/gemm/shape.hpp)."""
MOST_SPLITS = 16
PARTIAL_BYTES = 64 << 20
"""Of the sums that splits may leave in memory (devices/hip/workspace.py)."""
MOST_TILES = 1 << 14
"""Of a launch that splits: counters in the workspace."""
MEMORY_RATE = 6.45e6
"""Bytes in a microsecond that all CUs together read."""
SHARES = 2
"""Of that rate which a CU takes while others take none."""
AHEAD = 64 << 10
"""Bytes by which a CU may be ahead of its share: `hbm_burst` of the timing model."""
UNHIDDEN = 0.1
"""Of the shorter of what memory and CUs take: what the longer one does not hide. Of 0 to 0.35 the
value whose choices lose least by the timing model."""
SUM_TRANSFERS = 3
"""Of the sums of splits between CUs and memory, besides what `Cost.sum` has: a write counts as two
reads."""
GAP = 4.7
"""Microseconds from one kernel to the next: `dependent_gap` of the timing model."""
STEP_BYTES = 128
"""Of a weight's row."""


@dataclass(frozen=True)
class Cost:
    """Of a kernel, in microseconds.

    Args:
        resident: workgroups that a CU holds.
        fixed: of a workgroup, before and after its steps.
        alone: of a step of a workgroup that has a CU to itself; `shared`: of a workgroup's step
            where the CU is full, over the workgroups that share it.
        sum: of the sums of one split, which the last to arrive adds.
    """

    resident: int
    fixed: float
    alone: float
    shared: float
    sum: float

    def microseconds(self, of_a_unit: int, steps: int) -> float:
        """Of a CU with so many workgroups of so many steps."""
        rounds, rest = divmod(of_a_unit, self.resident)
        return sum(
            times * (self.fixed + steps * max(self.alone, together * self.shared))
            for times, together in ((rounds, self.resident), (min(rest, 1), rest))
        )


@dataclass(frozen=True)
class Candidate:
    """A kernel with a number of splits, and what it takes in a stream, behind another kernel, by
    this `source`."""

    entry: KernelEntry
    splits: int
    microseconds: float
    source: str = PLANNED


@cache
def costs(arch: str) -> dict[str, Cost]:
    """By kernel. Raises `KeyError` for an arch without a table."""
    table = json.loads(COSTS.read_text())[arch]
    return {
        name: Cost(**{key: value for key, value in row.items() if key != "sha256"})
        for name, row in table.items()
    }


def candidates(family: Family, m: int, n: int, k: int, compute_units: int) -> Iterator[Candidate]:
    """All of them, for at least one row, column and element of depth. The time of each grows with
    M, N and K, and so does that of the choice: more rows or columns leave fewer splits to choose
    from, and for each number of splits of a deeper launch there is one that serves a shallower one
    with no longer steps.
    """
    for entry in family:
        cost = costs(entry.arch)[entry.name]
        steps = -(-k // entry.tile.depth)
        down, across = -(-m // entry.tile.rows), -(-n // entry.tile.columns)
        tiles = down * across
        sides = ((across, entry.tile.columns), (down, entry.tile.rows))
        for splits in range(1, (MOST_SPLITS if can_split(entry, tiles) else 1) + 1):
            if splits > 1 and not _is_whole(steps, splits, tiles, entry):
                continue
            share = -(-steps // splits)
            memory = max(
                steps * sum(number * rows for number, rows in sides) * STEP_BYTES / MEMORY_RATE,
                cost.fixed + _last_read(sides, share, splits, compute_units) / MEMORY_RATE,
            )
            computing = cost.microseconds(-(-tiles * splits // compute_units), share)
            time = max(memory, computing) + UNHIDDEN * min(memory, computing)
            if splits > 1:  # `sum` has what they take where every CU writes some
                sums = tiles * splits * entry.tile.rows * entry.tile.columns * 4
                time += cost.sum * splits + SUM_TRANSFERS * sums / MEMORY_RATE
            yield Candidate(entry, splits, GAP + time)


def _last_read(
    sides: Sequence[tuple[int, int]], share: int, splits: int, compute_units: int
) -> float:
    """As how many bytes it counts, at the rate of all CUs, what the last CU reads of the side that
    takes longer; a side is a number of tiles and the rows of each, read by no other one."""
    turns = [_turns(number * splits, compute_units) for number, _ in sides]
    return max(
        0,
        *(
            each * share * rows * STEP_BYTES - min(each, compute_units) * AHEAD
            for each, (_, rows) in zip(turns, sides, strict=True)
        ),
    )


def _turns(workgroups: int, compute_units: int) -> int:
    """As how many workgroups these count that read what no other one reads. All CUs share the
    memory's rate, of which one takes up to `SHARES` shares while others have nothing to do; once
    each has a workgroup, all have a share, and the CU with most workgroups is the last."""
    if workgroups <= compute_units:
        return max(workgroups, compute_units // SHARES)
    return compute_units * -(-workgroups // compute_units)


def can_split(entry: KernelEntry, tiles: int) -> bool:
    """Whether the depth of this kernel's tiles may be split, in a launch of `tiles`."""
    return entry.tile.rows * entry.tile.columns <= LARGEST_SPLIT_TILE and tiles <= MOST_TILES


def _is_whole(steps: int, splits: int, tiles: int, entry: KernelEntry) -> bool:
    """Whether every split has steps, and the workspace room for the sums."""
    share = -(-steps // splits)
    return share * (splits - 1) < steps and sum_bytes(entry, tiles, splits) <= PARTIAL_BYTES


def tiles_of(entry: KernelEntry, m: int, n: int) -> int:
    """Of a launch."""
    return -(-m // entry.tile.rows) * -(-n // entry.tile.columns)


def sum_bytes(entry: KernelEntry, tiles: int, splits: int) -> int:
    """Of the sums that the splits of so many tiles leave in memory: none, where there is one."""
    return tiles * splits * entry.tile.rows * entry.tile.columns * 4 if splits > 1 else 0
