"""Times candidates in alternation, and judges each by the median of its runs.

Candidates alternate because a machine's speed drifts: those that run in the same second see the
same machine. The median counts, not the best run, because a shared machine has outliers.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Name = TypeVar("Name")

SHORTEST_SAMPLE = 0.02
"""Seconds that one sample takes about; a quicker call is repeated within a sample."""


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one candidate: one sample for each round, in order."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Interquartile range over the median, a measure of noise; NaN for a single sample."""
        if len(self.samples) < 2:
            return math.nan
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return (high - low) / self.median


def alternate(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time `candidates` in turn, `rounds` times over; every other round runs backwards.

    Each candidate is first called once without a sample. That call also decides how often a quick
    candidate is repeated within a sample.
    """
    repeats = {}
    for name, call in candidates.items():
        call()
        repeats[name] = max(1, round(SHORTEST_SAMPLE / max(_time(call, 1, clock), 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds):
        for name in order_of_round(list(candidates), turn):
            samples[name].append(_time(candidates[name], repeats[name], clock))
    return {name: Timing(tuple(values)) for name, values in samples.items()}


def order_of_round(candidates: Sequence[Name], turn: int) -> list[Name]:
    """The candidates in the order of round `turn`; every other round is reversed."""
    return list(candidates) if turn % 2 == 0 else list(reversed(candidates))


def _time(call: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats
