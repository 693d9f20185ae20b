"""The planner's choice among the kernels of a family: the launch that its model finds fastest."""

from __future__ import annotations

from functools import lru_cache

from hk_backend.kernels.catalogue import Family
from hk_backend.kernels.gemm_plan import Candidate, candidates

SAMPLED = (*range(16, 512, 16), *range(512, 8193, 128))
"""Rows: the last of each tile, as far as graphs are captured, then of larger ones."""


def planned(family: Family, m: int, n: int, k: int, compute_units: int) -> Candidate:
    """The launch for M rows times a weight `[n, k]`: a kernel, and over how many workgroups it
    splits the depth of a tile.

    Args:
        family: kernels of one format, at least one.
    """
    step = min(entry.tile.rows for entry in family)  # what tiles have in common
    return _planned(family, -(-m // step) * step, n, k, compute_units)


@lru_cache(maxsize=4096)
def _planned(family: Family, m: int, n: int, k: int, compute_units: int) -> Candidate:
    """The choice is alike for all numbers of rows that fill as many tiles."""
    return min(candidates(family, m, n, k, compute_units), key=lambda found: found.microseconds)
