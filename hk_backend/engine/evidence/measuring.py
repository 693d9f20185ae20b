"""Runs a contest: both sides in turn, for each number of rows, within a share of time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from hk_backend.config import MEASURE_SECONDS
from hk_backend.engine.evidence.contest import Call, Contest
from hk_backend.engine.evidence.stopwatch import Stopwatch
from hk_backend.terms.measurements import Times

FEWEST, MOST = 3, 21
"""Fewest and most calls of each side that are timed for one number of rows."""
SECONDS = 5.0
"""Seconds that all measurements of a model may take together, while an engine starts."""
ENOUGH, CLEAR = 7, 1.5
"""Number of pairs after which timing stops if one side takes `CLEAR` times as long as the other."""
SHORTEST = 1e-9
"""Shortest time in seconds that counts, as a clock may be too coarse for a call."""
MEMORY_BOUND = 16
"""Rows up to which a linear layer waits for its weight, so that more rows cost nothing."""
KINDS = 8
"""Kinds of layers of a Llama: four linear layers, the head, attention, decode at two lengths."""


@dataclass
class Budget:
    """The time left for the measurements of one model, shared out to its kinds of layers."""

    left: float = field(default_factory=lambda: float(os.environ.get(MEASURE_SECONDS, SECONDS)))
    kinds: int = KINDS

    def share(self, spent: float) -> float:
        """Seconds for the next kind, whose contest has taken `spent` seconds to make.

        Each kind that a Llama still has gets an equal part; each further kind gets half of the
        rest.
        """
        return max(self.left / max(self.kinds, 2) - spent, 0.0)

    def spend(self, seconds: float) -> None:
        """Subtracts the seconds that a kind has used."""
        self.left = max(self.left - seconds, 0.0)
        self.kinds -= 1


def measure(
    contest: Contest, stopwatch: Stopwatch, share: float
) -> tuple[tuple[Times, ...], tuple[int, ...]]:
    """Times both sides of `contest` in turn.

    Args:
        share: seconds that this may take. The smallest number of rows is measured in any case.

    Returns:
        the medians, and the numbers of rows that the share did not allow.

    Raises:
        Exception: whatever a side raises.
    """
    end = stopwatch.now() + share
    found: list[Times] = []
    for index, rows in enumerate(contest.rows):
        if found and stopwatch.now() + _expected(found[-1], rows) > end:
            return tuple(found), contest.rows[index:]
        sides = contest.ours(rows), contest.theirs(rows)
        pair = sum(map(stopwatch.seconds, sides))  # the first calls allocate and compile
        if found and stopwatch.now() + FEWEST * pair > end:
            return tuple(found), contest.rows[index:]
        parts = 2 * (len(contest.rows) - index) - 1  # more rows take more time: more parts
        left = end - stopwatch.now()
        found.append(_medians(sides, rows, stopwatch, left / parts))
    return tuple(found), ()


def _medians(sides: tuple[Call, Call], rows: int, stopwatch: Stopwatch, share: float) -> Times:
    """Typical times of both sides.

    Each side goes first in every other pair, so that neither gains by the other's leftovers.
    """
    end = stopwatch.now() + share
    samples: tuple[list[float], list[float]] = [], []
    for number in range(MOST):
        if number >= FEWEST and (stopwatch.now() > end or _is_clear(*samples)):
            break
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            samples[side].append(stopwatch.seconds(sides[side]))
    ours, theirs = map(_typical, samples)
    return Times(rows=rows, ours=ours, theirs=theirs)


def _is_clear(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Whether more pairs would change nothing, as one side is far faster in enough pairs."""
    if len(ours) < ENOUGH:
        return False
    ratio = _typical(ours) / _typical(theirs)
    return max(ratio, 1 / ratio) > CLEAR


def _typical(samples: Sequence[float]) -> float:
    """Median of the fastest third, in microseconds with four digits.

    Other processes only ever add time, and on a busy machine they disturb most calls.
    """
    fastest = sorted(samples)[: -(-len(samples) // 3)]
    return float(f"{max(median(fastest), SHORTEST) * 1e6:.4g}")


def _expected(before: Times, rows: int) -> float:
    """Estimated seconds of a pair of calls, from a pair with fewer rows."""
    growth = max(rows, MEMORY_BOUND) / max(before.rows, MEMORY_BOUND)
    return (before.ours + before.theirs) / 1e6 * growth
