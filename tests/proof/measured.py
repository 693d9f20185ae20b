"""Counters of the case that runs: its launches, its largest error, the engines that it read."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tests import budget


@dataclass
class Measured:
    """Launches on the emulator, and the largest error in units of its bound, since `restart`."""

    launches: int = 0
    worst: float = 0.0

    def restart(self) -> None:
        self.launches, self.worst = 0, 0.0


MEASURED = Measured()


def note_error(in_bounds: float) -> None:
    """A case's largest error in units of what its test allows."""
    MEASURED.worst = max(MEASURED.worst, in_bounds)


ENGINES_READ: set[str] = set()
"""Names of the engines whose answers the case read, whichever case had them started."""


def note_engine(name: str) -> None:
    """The case reads what the engine `name` answered."""
    ENGINES_READ.add(name)


@functools.cache
def count_launches() -> None:
    """Make each launch on an emulated machine count, once however often this is called."""
    budget.count_launches(_note_launch)


def _note_launch(*_: object) -> None:
    MEASURED.launches += 1
