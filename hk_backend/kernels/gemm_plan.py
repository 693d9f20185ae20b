"""Candidates for a gemm launch: kernels, numbers of splits along the depth, and estimated times.

Candidates are the kernels of one format (`family`), each with every number of splits that leaves
each workgroup at least one step. Their times follow from the kernels' costs (costs.py).
gemm_choice.py chooses among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hk_backend.kernels.catalogue import Family
from hk_backend.kernels.costs import MOST_PARTIAL_BYTES, Cost, Costs, costs
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_operands import operands_of

PLANNED = "planned"
LARGEST_SPLIT_TILE = 128 * 128
"""Most elements of a tile of C whose depth a kernel may split (csrc/kernels/gemm/shape.hpp)."""
MOST_SPLITS = 16
MOST_TILES = 1 << 14
"""Most tiles of a launch that splits: the number of counters in the workspace."""
SHARES = 3
"""How many times its equal share of the memory's rate one CU reaches while others are idle.

Of the values 2, 2.5 and 3 it loses least time by its choices, according to the timing model.
"""
UNHIDDEN = 0.1
"""Share of the shorter of memory time and compute time that the longer one does not hide.

Of the values 0 to 0.35 it loses least time by its choices, according to the timing model.
"""
SUM_TRANSFERS = 3
"""Transfers of each partial sum between CUs and memory that `Cost.sum` does not cover. A write
counts as two reads."""


STEP_BYTES = 128
"""Bytes of a row that one step of the loop reads, besides MX formats."""


@dataclass(frozen=True)
class Candidate:
    """A kernel with a number of splits, and its time in a stream behind another kernel. `source`
    says where the time comes from."""

    entry: KernelEntry
    splits: int
    microseconds: float
    source: str = PLANNED


def candidates(family: Family, m: int, n: int, k: int, compute_units: int) -> Iterator[Candidate]:
    """Yields every candidate; M, N and K are at least 1.

    The time of each candidate grows with M, N and K, and so does the time of the best: more rows or
    columns never allow more splits, and a deeper launch never has shorter splits to choose from.
    """
    for entry in family:
        clock = costs(entry.arch)
        cost, rate = clock.gemm[entry.name], clock.read_bytes_per_microsecond
        steps = -(-k // entry.tile.depth)
        down, across = -(-m // entry.tile.rows), -(-n // entry.tile.columns)
        tiles = down * across
        of_a, of_b = _row_bytes(entry)
        # tiles of a side, and the bytes of each in a step
        sides = ((across, entry.tile.columns * of_b), (down, entry.tile.rows * of_a))
        for splits in range(1, (MOST_SPLITS if can_split(entry, tiles) else 1) + 1):
            if splits > 1 and not _is_possible(steps, splits, tiles, entry):
                continue
            share = -(-steps // splits)
            memory = max(
                steps * sum(number * size for number, size in sides) / rate,
                cost.fixed + _last_read(sides, share, splits, compute_units, clock) / rate,
            )
            computing = _microseconds(cost, -(-tiles * splits // compute_units), share)
            time = max(memory, computing) + UNHIDDEN * min(memory, computing)
            if splits > 1:  # `cost.sum` covers the time where every CU writes sums
                sums = tiles * splits * entry.tile.rows * entry.tile.columns * 4
                time += cost.sum * splits + SUM_TRANSFERS * sums / rate
            yield Candidate(entry, splits, clock.launch_microseconds + time)


def _row_bytes(entry: KernelEntry) -> tuple[int, int]:
    """Bytes of a row of the activations, and of the weights, that one step of the loop reads.

    16-bit rows beside FP8 weights have 256. By the timing model the planner then chooses worse.
    """
    operands = operands_of(entry)
    if not operands.weights_are_mx:
        return STEP_BYTES, STEP_BYTES
    of_a, of_b = operands.bits
    return entry.tile.depth * of_a // 8, entry.tile.depth * of_b // 8


def _microseconds(cost: Cost, of_a_unit: int, steps: int) -> float:
    """Time of a CU that runs `of_a_unit` workgroups of `steps` steps each."""
    rounds, rest = divmod(of_a_unit, cost.resident)
    return sum(
        times * (cost.fixed + steps * max(cost.alone, together * cost.shared))
        for times, together in ((rounds, cost.resident), (min(rest, 1), rest))
    )


def _last_read(
    sides: Sequence[tuple[int, int]], share: int, splits: int, compute_units: int, clock: Costs
) -> float:
    """Bytes that stand for the last CU's reads, at the memory rate of all CUs together.

    The side (A or B) that takes longer counts. A side is a number of tiles and the bytes of each in
    a step; each of its tiles is read for one workgroup only.
    """
    turns = [_turns(number * splits, compute_units) for number, _ in sides]
    return max(
        0,
        *(
            each * share * size - min(each, compute_units) * clock.read_ahead_bytes
            for each, (_, size) in zip(turns, sides, strict=True)
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


def _is_possible(steps: int, splits: int, tiles: int, entry: KernelEntry) -> bool:
    """Whether every split has at least one step, and the workspace has room for the sums."""
    share = -(-steps // splits)
    return share * (splits - 1) < steps and sum_bytes(entry, tiles, splits) <= MOST_PARTIAL_BYTES


def tiles_of(entry: KernelEntry, m: int, n: int) -> int:
    """Number of tiles in a launch."""
    return -(-m // entry.tile.rows) * -(-n // entry.tile.columns)


def sum_bytes(entry: KernelEntry, tiles: int, splits: int) -> int:
    """Bytes of the partial sums that the splits leave in memory; 0 for a single split."""
    return tiles * splits * entry.tile.rows * entry.tile.columns * 4 if splits > 1 else 0
