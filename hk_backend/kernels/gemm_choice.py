"""Which launch serves a shape: the one that HK_TUNING names, else the planner's.

choice = choose(family, m, n, k, compute_units=256)
choice.entry, choice.splits
"""

from __future__ import annotations

from functools import lru_cache

from hk_backend.config import get_config
from hk_backend.kernels import tuning
from hk_backend.kernels.catalogue import Family
from hk_backend.kernels.gemm_plan import Candidate, candidates
from hk_backend.kernels.tuning import Format, Tuning, Weight


@lru_cache(maxsize=4096)
def choose(family: Family, m: int, n: int, k: int, compute_units: int) -> Candidate:
    """`family`: kernels of one format, at least one. A kernel that the file names and that is not
    in it, as it failed on this machine, leaves the choice to the planner."""
    first = family[0]
    weight = Weight(first.arch, compute_units, format_of(family), n, k)
    line = tuned().at(weight, m)
    for entry in family:
        if line is not None and entry.name == line.kernel:
            return Candidate(entry, line.splits, line.microseconds, line.source)
    return min(candidates(family, m, n, k, compute_units), key=lambda found: found.microseconds)


def format_of(family: Family) -> Format:
    """What tells the kernels of one family from others."""
    return Format(*(str(family[0].facts[name]) for name in ("a", "b", "scales")))


def tuned() -> Tuning:
    """What HK_TUNING names: nothing where it is not set. Raises `TuningError`."""
    path = get_config().tuning
    return tuning.load(path) if path else Tuning()
