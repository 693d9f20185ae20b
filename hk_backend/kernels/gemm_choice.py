"""The planner's choice among the kernels of a family: the launch with the least modelled time."""

from __future__ import annotations

from functools import lru_cache

from hk_backend.kernels.catalogue import Family
from hk_backend.kernels.gemm_plan import Candidate, candidates

SAMPLED = (*range(16, 512, 16), *range(512, 8193, 128))
"""Numbers of rows that stand for all: multiples of 16 below 512, as graphs have, then of 128."""


def planned(family: Family, m: int, n: int, k: int, compute_units: int) -> Candidate:
    """The launch for M rows times a weight `[n, k]`: a kernel and a number of splits of the depth.

    Args:
        family: kernels of one format, at least one.
    """
    step = min(entry.tile.rows for entry in family)  # every tile is a multiple of the smallest
    return _planned(family, -(-m // step) * step, n, k, compute_units)


@lru_cache(maxsize=4096)
def _planned(family: Family, m: int, n: int, k: int, compute_units: int) -> Candidate:
    """The planned launch for M rounded up to whole tiles, as it is the same for all such M."""
    return min(candidates(family, m, n, k, compute_units), key=lambda found: found.microseconds)
