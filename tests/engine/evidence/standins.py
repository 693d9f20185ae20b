"""Stand-ins for what evidence is measured with: a clock, contests, ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import TypeVar

from hk_backend.engine.evidence import Call, Contest, Kind

T = TypeVar("T")
KIND = Kind("linear", "vLLM", "cpu:avx2", "bf16 64x64 from bfloat16", "UnquantizedLinearMethod")
ROWS = (1, 8, 64, 512)


@dataclass
class FakeClock:
    """A clock that only calls of a contest move."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


Cost = Callable[[int], Iterator[float]]
"""Seconds of one call after another, for a number of rows."""


def always(seconds: float, by_row: float = 0.0) -> Cost:
    """Every call takes the same time."""
    return lambda rows: cycle([seconds + by_row * rows])


def noisy(seconds: float, factors: Sequence[float]) -> Cost:
    """Calls take the time multiplied by the factors in turn."""
    return lambda rows: cycle([seconds * factor for factor in factors])


@dataclass
class StandIn:
    """A contest whose calls move `clock`; `calls` counts them by side and rows."""

    clock: FakeClock
    ours: Cost
    theirs: Cost
    rows: tuple[int, ...] = ROWS
    made: int = 0
    calls: list[tuple[str, int]] = field(default_factory=list)

    def __call__(self) -> Contest:
        self.made += 1
        return Contest(self.rows, self._side("ours", self.ours), self._side("theirs", self.theirs))

    def _side(self, name: str, cost: Cost) -> Callable[[int], Call]:
        def make(rows: int) -> Call:
            times = cost(rows)

            def call() -> None:
                self.calls.append((name, rows))
                self.clock.seconds += next(times)

            return call

        return make
