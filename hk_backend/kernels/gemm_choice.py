"""Which launch serves a shape: the one that a file of times names (HK_TUNING), else the planner's.

    choice = choose(family, m, n, k, compute_units=256, tuning=get_config().tuning)

It is a kernel of the family, and over how many workgroups it splits the depth of a tile.
"""

from __future__ import annotations

from functools import lru_cache

from hk_backend.kernels.catalogue import Family
from hk_backend.kernels.gemm_formats import format_of
from hk_backend.kernels.gemm_plan import Candidate, candidates, sum_bytes, tiles_of
from hk_backend.kernels.tuning import Tuning, Weight

SAMPLED = (*range(16, 512, 16), *range(512, 8193, 128))
"""Rows: the last of each tile, as far as graphs are captured, then of larger ones."""


@lru_cache(maxsize=4096)
def choose(family: Family, m: int, n: int, k: int, compute_units: int, tuning: Tuning) -> Candidate:
    """`family`: kernels of one format, at least one. A kernel that the file names and that is not
    in it, as it failed on this machine, leaves the choice to the planner."""
    line = tuning.at(_weight(family, n, k, compute_units), m)
    for entry in family:
        if line is not None and entry.name == line.kernel:
            return Candidate(entry, line.splits, line.microseconds, line.source)
    step = min(entry.tile.rows for entry in family)  # what tiles have in common
    return _planned(family, -(-m // step) * step, n, k, compute_units)


@lru_cache(maxsize=4096)
def _planned(family: Family, m: int, n: int, k: int, compute_units: int) -> Candidate:
    """The planner's choice, alike for all numbers of rows that fill as many tiles."""
    return min(candidates(family, m, n, k, compute_units), key=lambda found: found.microseconds)


@lru_cache(maxsize=256)
def most_sum_bytes(family: Family, n: int, k: int, compute_units: int, tuning: Tuning) -> int:
    """Of the sums that splits leave in memory, for any number of rows among `SAMPLED` or in the
    file."""
    listed = tuning.lines.get(_weight(family, n, k, compute_units), ())
    rows = {*SAMPLED, *(line.m for line in listed)}
    chosen = ((m, choose(family, m, n, k, compute_units, tuning)) for m in rows)
    return max(sum_bytes(of.entry, tiles_of(of.entry, m, n), of.splits) for m, of in chosen)


def _weight(family: Family, n: int, k: int, compute_units: int) -> Weight:
    return Weight(family[0].arch, compute_units, format_of(family[0]), n, k)
