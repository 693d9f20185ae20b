"""Candidates for a gemm launch: kernels, numbers of splits along the depth, and estimated times.

Candidates are the kernels of one format (`family`), each with every number of splits that leaves
each workgroup at least one step. Their times come from a table that the timing model wrote
(hk_backend/timing/gemm_costs.py). gemm_choice.py chooses among them.
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
"""Table of `Cost`, by arch and kernel."""
PLANNED = "planned"
LARGEST_SPLIT_TILE = 128 * 128
"""Most elements of a tile of C whose depth a kernel may split (csrc/kernels/gemm/shape.hpp)."""
MOST_SPLITS = 16
PARTIAL_BYTES = 64 << 20
"""Most bytes of partial sums that splits may leave in memory (devices/hip/workspace.py)."""
MOST_TILES = 1 << 14
"""Most tiles of a launch that splits: the number of counters in the workspace."""
MEMORY_RATE = 6.45e6
"""Bytes per microsecond that all CUs together read from memory."""
SHARES = 2
"""Multiples of its share of `MEMORY_RATE` that one CU reaches while others are idle."""
AHEAD = 64 << 10
"""Bytes by which a CU's reads may run ahead of its share: `hbm_burst` of the timing model."""
UNHIDDEN = 0.1
"""Share of the shorter of memory time and compute time that the longer one does not hide.

Of the values 0 to 0.35 it loses least time by its choices, according to the timing model.
"""
SUM_TRANSFERS = 3
"""Transfers of each partial sum between CUs and memory that `Cost.sum` does not cover. A write
counts as two reads."""
GAP = 4.7
"""Microseconds from one kernel's end to the next one's start: the model's `dependent_gap`."""
STEP_BYTES = 128
"""Bytes of a row that one step of the loop reads."""


@dataclass(frozen=True)
class Cost:
    """Times of a kernel, in microseconds.

    Args:
        resident: workgroups that a CU holds at once.
        fixed: time of a workgroup before and after its steps.
        alone: time of a step in a workgroup that has a CU to itself.
        shared: time of a workgroup's step on a full CU, divided by the workgroups that share it.
        sum: time to add the partial sums of one split, which the last workgroup to arrive does.
    """

    resident: int
    fixed: float
    alone: float
    shared: float
    sum: float

    def microseconds(self, of_a_unit: int, steps: int) -> float:
        """Time of a CU that runs `of_a_unit` workgroups of `steps` steps each."""
        rounds, rest = divmod(of_a_unit, self.resident)
        return sum(
            times * (self.fixed + steps * max(self.alone, together * self.shared))
            for times, together in ((rounds, self.resident), (min(rest, 1), rest))
        )


@dataclass(frozen=True)
class Candidate:
    """A kernel with a number of splits, and its time in a stream behind another kernel. `source`
    says where the time comes from."""

    entry: KernelEntry
    splits: int
    microseconds: float
    source: str = PLANNED


@cache
def costs(arch: str) -> dict[str, Cost]:
    """Costs by kernel. Raises `KeyError` for an arch without a table."""
    table = json.loads(COSTS.read_text())[arch]
    return {
        name: Cost(**{key: value for key, value in row.items() if key != "code"})
        for name, row in table.items()
    }


def candidates(family: Family, m: int, n: int, k: int, compute_units: int) -> Iterator[Candidate]:
    """Yields every candidate for at least one row, column and element of depth.

    The time of each candidate grows with M, N and K, and so does the time of the best. More rows or
    columns leave fewer splits to choose from. For each number of splits of a deeper launch, some
    number of a shallower one has no longer steps.
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
            if splits > 1:  # `cost.sum` covers the time where every CU writes sums
                sums = tiles * splits * entry.tile.rows * entry.tile.columns * 4
                time += cost.sum * splits + SUM_TRANSFERS * sums / MEMORY_RATE
            yield Candidate(entry, splits, GAP + time)


def _last_read(
    sides: Sequence[tuple[int, int]], share: int, splits: int, compute_units: int
) -> float:
    """Bytes that stand for the last CU's reads, at the memory rate of all CUs together.

    The side (A or B) that takes longer counts. A side is a number of tiles and the rows of each;
    each of its tiles is read for one workgroup only.
    """
    turns = [_turns(number * splits, compute_units) for number, _ in sides]
    return max(
        0,
        *(
            each * share * rows * STEP_BYTES - min(each, compute_units) * AHEAD
            for each, (_, rows) in zip(turns, sides, strict=True)
        ),
    )


def _turns(workgroups: int, compute_units: int) -> int:
    """Workgroups whose reads, at the rate of all CUs, take as long as those of the last CU here.

    Each workgroup reads data that no other one reads. All CUs share the memory's rate, and one CU
    takes at most `SHARES` shares while others are idle. Once each has a workgroup, all take one
    share, and the CU with most workgroups is the last.
    """
    if workgroups <= compute_units:
        return max(workgroups, compute_units // SHARES)
    return compute_units * -(-workgroups // compute_units)


def can_split(entry: KernelEntry, tiles: int) -> bool:
    """Whether this kernel may split the depth of its tiles, in a launch of `tiles`."""
    return entry.tile.rows * entry.tile.columns <= LARGEST_SPLIT_TILE and tiles <= MOST_TILES


def _is_whole(steps: int, splits: int, tiles: int, entry: KernelEntry) -> bool:
    """Whether every split has at least one step, and the workspace has room for the sums."""
    share = -(-steps // splits)
    return share * (splits - 1) < steps and sum_bytes(entry, tiles, splits) <= PARTIAL_BYTES


def tiles_of(entry: KernelEntry, m: int, n: int) -> int:
    """Number of tiles in a launch."""
    return -(-m // entry.tile.rows) * -(-n // entry.tile.columns)


def sum_bytes(entry: KernelEntry, tiles: int, splits: int) -> int:
    """Bytes of the partial sums that the splits leave in memory; 0 for a single split."""
    return tiles * splits * entry.tile.rows * entry.tile.columns * 4 if splits > 1 else 0
